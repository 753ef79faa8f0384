//! A tier of digest-keyed blocks in host memory, private to a process or shared on a host. Its
//! threads make the copies.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use radixkv_region::{self as shared, DigestBlocks, DigestKey, DigestPut, Namespace, Presence};

use crate::{
    caught::caught,
    key::BlockKey,
    layout::Layout,
    object::Miss,
    open::{Limits, OpenError},
    opened::Tier,
    queue::{Job, Queue, Request},
    tier::{Buffer, Completion, Failure, Get, NotGot, Outcome, Put},
};

/// How many requests a thread takes at once.
const BATCH: usize = 16;
/// How often the threads recover killed processes, while there are requests.
const RECOVER: Duration = Duration::from_secs(1);

/// Settings of a tier of digest-keyed blocks in host memory: a namespace of a region, which the
/// processes of the host may share.
///
/// Threads of the tier make the copies, so that a scheduler's thread only submits and polls. A
/// scheduler that needs an answer at once looks in the region itself, with [`DigestTier::key`]:
/// that only reads a few cache lines.
///
/// It differs from other tiers in two ways. A block that is already stored is kept with its time to
/// live, unless it is put again with a time to live. And a get copies directly into the buffer,
/// whose content is unspecified after any miss except absence.
///
/// # Examples
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use radixkv_tiers::radixkv_region::{DigestLayout, DigestRegion, Presence};
/// use radixkv_tiers::{DigestTier, Layout, Put, RemoteTier};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("kv");
/// // 1,024 blocks of up to 4 KiB, in a file of a folder of one's own under /dev/shm; each process does the same.
/// let region = Arc::new(DigestRegion::open_or_create(path, &DigestLayout::new(4096, 1024))?);
/// let layout = Layout::new("llama-3-8b@main", "bf16", 16, 4096)?.digest_keys(36, "sha256_cbor", "0")?;
/// let blocks = Arc::new(region.namespace(&DigestTier::namespace("vllm", &layout))?);
/// let tier = DigestTier::new(Arc::clone(&blocks), layout.clone())?.open::<Vec<u8>>()?;
/// let block = layout.digest_block(&[7; 36])?;
/// tier.put_from(vec![Put { block: block.clone(), buffer: vec![9; 4096], time_to_live: None }])?;
/// let mut done = Vec::new();
/// tier.poll(&mut done, Duration::from_secs(10));
/// assert_eq!(blocks.exists(&[DigestTier::key(block.key())])?, [Presence::Stored]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DigestTier {
    blocks: Arc<DigestBlocks>,
    layout: Layout,
    threads: usize,
    limits: Limits,
}

impl DigestTier {
    /// Settings for a namespace that was opened as described by [`namespace`](Self::namespace).
    ///
    /// # Errors
    ///
    /// [`OpenError::OtherLayout`], if the layout names blocks by tokens, has other block bytes than
    /// the namespace, or is encrypted: in a region the namespace is encrypted instead.
    pub fn new(blocks: Arc<DigestBlocks>, layout: Layout) -> Result<Self, OpenError> {
        let differs = |field, stored: String, asked: String| OpenError::OtherLayout {
            place: "the region".to_owned(),
            field,
            stored,
            asked,
        };
        if !layout.has_digest_keys() {
            return Err(differs("keys", "digests".to_owned(), "tokens".to_owned()));
        }
        if layout.seal().is_some() {
            return Err(differs("encryption", "that of its namespace".to_owned(), "AES-256-GCM".to_owned()));
        }
        if blocks.block_bytes() != layout.block_bytes() {
            return Err(differs("block bytes", blocks.block_bytes().to_string(), layout.block_bytes().to_string()));
        }
        Ok(Self { blocks, layout, threads: 2, limits: Limits::new(Duration::from_secs(10)) })
    }

    /// Describes the namespace of a layout's blocks in a region, under a name.
    ///
    /// [`Namespace::checksum`] can be changed before it is opened.
    pub fn namespace(name: &str, layout: &Layout) -> Namespace {
        let [model, dtype, kv_layout, shard, ..] = layout.fields().map(|(_, value)| value);
        let keys = layout.keys().unwrap_or_default();
        Namespace::new(name, size_of::<BlockKey>(), layout.block_bytes())
            .model(model)
            .dtype(dtype)
            .arrangement(kv_layout)
            .shard(shard)
            .block_tokens(layout.block_size() as u32)
            .hash("radixkv-tiers 1", keys)
    }

    /// The key of a block in the region.
    pub fn key(key: BlockKey) -> DigestKey {
        DigestKey::new(key.as_bytes()).expect("32 bytes are a digest")
    }

    /// Sets the number of threads that copy, from 1 to 256. Default: 2.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: threads.clamp(1, 256), ..self }
    }

    /// Sets how many items may be in flight; at least one. Default: 1,024.
    pub fn max_in_flight(mut self, items: usize) -> Self {
        self.limits.set_max_in_flight(items);
        self
    }

    /// Sets how long a request may wait for a thread; at least 1 ms. Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.set_timeout(timeout);
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`OpenError::Io`], if a thread could not be started.
    pub fn open<B: Buffer>(self) -> Result<Tier<B>, OpenError> {
        let mut tier = Tier::new(self.layout, self.limits.max_in_flight, self.limits.timeout);
        let recovered = Arc::new(Mutex::new(Instant::now()));
        for number in 0..self.threads {
            let (blocks, recovered) = (Arc::clone(&self.blocks), Arc::clone(&recovered));
            let run = move |queue: &Arc<Queue<B>>, _: &Arc<Layout>| work(queue, &blocks, &recovered);
            let started = tier.spawn(&format!("kv-memory-{number}"), run);
            started.map_err(|error| OpenError::io("the region", error))?;
        }
        Ok(tier)
    }
}

/// Carries out requests until the queue is closed.
fn work<B: Buffer>(queue: &Queue<B>, blocks: &DigestBlocks, recovered: &Mutex<Instant>) {
    while let Some(jobs) = queue.take(BATCH) {
        for job in jobs {
            queue.complete(carry_out(queue, blocks, job));
        }
        // Only one thread recovers killed processes; the others do not wait for it.
        if let Ok(mut last) = recovered.try_lock() {
            if last.elapsed() >= RECOVER {
                blocks.region().recover();
                *last = Instant::now();
            }
        }
    }
}

fn carry_out<B: Buffer>(queue: &Queue<B>, blocks: &DigestBlocks, job: Job<B>) -> Completion<B> {
    let (bytes, counters) = (blocks.block_bytes(), &queue.counters);
    job.ends(|request| match request {
        Request::Contains(name) => {
            let presence = blocks.exists(&[DigestTier::key(name)]).map(|presence| presence[0]);
            Outcome::Contained(name, Ok(presence == Ok(Presence::Stored)))
        }
        Request::Get(mut wanted) => {
            let got = get(blocks, &mut wanted);
            match got {
                Ok(()) => counters.hit(bytes),
                Err(NotGot::Miss(miss)) => counters.missed(miss),
                Err(NotGot::Failed(failure)) => counters.failed(failure),
            }
            Outcome::Got(wanted, got)
        }
        Request::Put(given, _) => {
            let stored = put(blocks, &given);
            match stored {
                Ok(()) => counters.stored(bytes),
                Err(failure) => counters.failed(failure),
            }
            Outcome::Put(given, stored)
        }
        Request::Remove(name) => {
            counters.removed();
            // Cannot fail: a key of 32 bytes has the namespace's length.
            let _ = blocks.remove(&[DigestTier::key(name)]);
            Outcome::Removed(name, Ok(()))
        }
    })
}

fn get<B: Buffer>(blocks: &DigestBlocks, wanted: &mut Get<B>) -> Result<(), NotGot> {
    let key = DigestTier::key(wanted.block.key());
    let copied = guarded(|| {
        let gets = blocks.get_into(&[key], &mut [wanted.buffer.as_mut()]);
        gets.map(|gets| gets[0]).map_err(|_| Failure::Buffer)
    })?;
    Err(NotGot::Miss(match copied {
        shared::Get::Hit => return Ok(()),
        shared::Get::Miss(shared::Miss::Expired) => Miss::Expired,
        shared::Get::Miss(shared::Miss::Undecryptable) => Miss::Undecryptable,
        shared::Get::Miss(shared::Miss::Damaged | shared::Miss::WrongChecksum) => Miss::WrongChecksum,
        shared::Get::Miss(_) => Miss::Absent,
    }))
}

fn put<B: Buffer>(blocks: &DigestBlocks, given: &Put<B>) -> Result<(), Failure> {
    let keys = [DigestTier::key(given.block.key())];
    guarded(|| {
        let bytes = given.buffer.as_ref();
        let store = || blocks.put_from(&keys, &[bytes], given.time_to_live).map_err(|_| Failure::Buffer);
        let mut stored = store()?[0];
        if stored == DigestPut::Present && given.time_to_live.is_some() && blocks.remove(&keys) == Ok(1) {
            stored = store()?[0];
        }
        match stored {
            DigestPut::Stored | DigestPut::Present | DigestPut::InFlight => Ok(()),
            DigestPut::NoRoom | DigestPut::OverQuota => Err(Failure::NoRoom),
            DigestPut::KeyExhausted => Err(Failure::KeyExhausted),
        }
    })
}

/// Runs code that uses a caller's buffer, which may panic.
fn guarded<R>(act: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    caught(act).unwrap_or(Err(Failure::Buffer))
}
