//! A tier in a region of memory that the processes of one host share.
//!
//! Copies within the machine's memory need no thread: the calling thread carries requests out, and
//! the completions wait to be polled.

mod digests;

use std::{
    collections::VecDeque,
    fmt,
    path::Path,
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use digests::DigestTier;
use radixkv_region::{self as shared, PutError, Region};

use crate::{
    caught::caught,
    key::{Block, BlockKey},
    layout::{Layout, LayoutDigest, PLAIN},
    object::Miss,
    open::OpenError,
    stats::{Counters, Stats},
    tier::{Buffer, Completion, Failure, Get, NotGot, Outcome, Put, Refusal, Refused, RemoteTier, Ticket},
};

/// The maximum number of completions that wait to be polled.
const MAX_IN_FLIGHT: usize = 1024;

/// A remote tier in a memory region that the engine processes of one host share: each process finds
/// the blocks that the others stored, even if they were killed. Its blocks are named by tokens;
/// [`DigestTier`] is for blocks that are named by digests.
///
/// The calling thread carries batches out: one copy for each block, and no waiting. A put of a
/// block that another process is storing succeeds. In a forked process every call is refused.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use radixkv_tiers::{Layout, Outcome, Put, RegionTier, RemoteTier};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("kv");
/// // 1,024 blocks, in a file of a folder of one's own under /dev/shm; each process does the same.
/// let layout = Layout::new("llama-3-8b@main", "bf16", 16, 4096)?;
/// let tier = RegionTier::open_or_create(path, layout.clone(), 1024)?;
/// let block = layout.blocks("tenant 7", &[1; 16]).remove(0);
/// tier.put_from(vec![Put { block, buffer: vec![9; 4096], time_to_live: None }])?;
/// let mut done = Vec::new();
/// assert_eq!(tier.poll(&mut done, Duration::ZERO), 1);
/// assert!(matches!(done[0].outcome, Outcome::Put(_, Ok(()))));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct RegionTier<B> {
    layout: Layout,
    digest: LayoutDigest,
    region: Region,
    state: Mutex<State<B>>,
    counters: Counters,
    opened_by: u32,
}

struct State<B> {
    next_ticket: u64,
    /// Accepted items whose completions were not polled.
    in_flight: usize,
    done: VecDeque<Completion<B>>,
}

impl<B: Buffer> RegionTier<B> {
    /// Opens the region in a file, or creates one with `capacity` blocks: the file system then
    /// allocates its memory at once.
    ///
    /// # Errors
    ///
    /// [`OpenError::Region`], if the region has another layout or capacity (with both values), the
    /// file is not a region, no process slot is free, or the system reports an error.
    /// [`OpenError::OtherLayout`], for blocks that are named by digests or encrypted.
    pub fn open_or_create(path: impl AsRef<Path>, layout: Layout, capacity: u32) -> Result<Self, OpenError> {
        // This tier's blocks are named by tokens, and never encrypted.
        let [.., keys, encryption] = layout.store_fields();
        for ((field, asked), stored) in [keys, encryption].into_iter().zip(PLAIN) {
            if asked != stored {
                let (place, stored) = (path.as_ref().display().to_string(), stored.to_owned());
                return Err(OpenError::OtherLayout { place, field, stored, asked });
            }
        }
        let region = Region::open_or_create(&path, &of_region(&layout, capacity));
        let place = || path.as_ref().display().to_string();
        Ok(Self::over(region.map_err(|source| OpenError::Region { place: place(), source })?, layout))
    }

    fn over(region: Region, layout: Layout) -> Self {
        Self {
            digest: layout.digest(),
            layout,
            region,
            state: Mutex::new(State { next_ticket: 0, in_flight: 0, done: VecDeque::new() }),
            counters: Counters::default(),
            opened_by: process::id(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // No code of a caller runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a batch out, or returns it.
    fn carry_out<T>(
        &self,
        batch: Vec<T>,
        check: impl Fn(usize, &T) -> Result<(), Refusal>,
        mut act: impl FnMut(T) -> Outcome<B>,
    ) -> Result<Ticket, Refused<Vec<T>>> {
        if let Err(reason) = self.accepts(&batch, check) {
            self.counters.refused();
            return Err(Refused { batch, reason });
        }
        // In reverse, so that the first item becomes the most recently used: the blocks of a batch
        // are in the order of their sequence.
        let mut outcomes: Vec<_> = batch.into_iter().rev().map(&mut act).collect();
        outcomes.reverse();
        let mut state = self.lock();
        let ticket = Ticket(state.next_ticket);
        state.next_ticket += 1;
        let ends = outcomes.into_iter().enumerate();
        state.done.extend(ends.map(|(index, outcome)| Completion { ticket, index, outcome }));
        Ok(ticket)
    }

    /// Whether this is the process that opened the tier. In a forked process the lock may never be
    /// released.
    fn is_here(&self) -> bool {
        process::id() == self.opened_by
    }

    fn accepts<T>(&self, batch: &[T], check: impl Fn(usize, &T) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let (asked, max) = (batch.len(), MAX_IN_FLIGHT);
        if !self.is_here() {
            return Err(Refusal::Forked { opened_by: self.opened_by, here: process::id() });
        }
        if asked > max {
            return Err(Refusal::TooLarge { asked, max });
        }
        batch.iter().enumerate().try_for_each(|(index, item)| check(index, item))?;
        let mut state = self.lock();
        let in_flight = state.in_flight;
        if asked > max - in_flight {
            return Err(Refusal::Full { asked, in_flight, max });
        }
        state.in_flight += asked;
        Ok(())
    }

    fn check(&self, index: usize, block: &Block, buffer: &B) -> Result<(), Refusal> {
        let (bytes, block_bytes) = (buffer.as_ref().len(), self.layout.block_bytes());
        match block.layout() == self.digest {
            false => Err(Refusal::OtherLayout { index }),
            true if bytes != block_bytes => Err(Refusal::BufferBytes { index, bytes, block_bytes }),
            true => Ok(()),
        }
    }

    /// Copies a block to `scratch` and then to the buffer, because an overwrite by another process
    /// is detected only after the copy.
    fn get(&self, get: &mut Get<B>, scratch: &mut [u8]) -> Result<(), NotGot> {
        let found = self.region.get_into(&key(get.block.key()), get.block.tokens(), scratch);
        match found.map_err(|_| Failure::Buffer)? {
            shared::Get::Hit => {}
            shared::Get::Miss(shared::Miss::Expired) => return Err(Miss::Expired.into()),
            shared::Get::Miss(shared::Miss::OtherTokens) => return Err(Miss::WrongTokens.into()),
            shared::Get::Miss(shared::Miss::Damaged) => return Err(Miss::WrongChecksum.into()),
            shared::Get::Miss(_) => return Err(Miss::Absent.into()),
        }
        guarded(|| {
            let bytes = get.buffer.as_mut();
            if bytes.len() != scratch.len() {
                return Err(Failure::Buffer);
            }
            bytes.copy_from_slice(scratch);
            Ok(())
        })
        .map_err(NotGot::Failed)
    }

    /// Stores a block; one that is already stored is replaced, including its time to live.
    fn put(&self, put: &Put<B>) -> Result<(), Failure> {
        let (key, tokens) = (key(put.block.key()), put.block.tokens());
        guarded(|| {
            let bytes = put.buffer.as_ref();
            let store = || match put.time_to_live {
                Some(time) => self.region.put_expiring(&key, tokens, bytes, time),
                None => self.region.put(&key, tokens, bytes),
            };
            let mut stored = store();
            if stored == Ok(shared::Put::Present) && self.region.remove(&key) {
                stored = store();
            }
            match stored {
                Ok(shared::Put::Stored | shared::Put::Present | shared::Put::InFlight) => Ok(()),
                Ok(shared::Put::Collision) => Err(Failure::Denied),
                Err(PutError::Full { .. }) => Err(Failure::NoRoom),
                Err(PutError::Lengths(_)) => Err(Failure::Buffer),
                Err(_) => Err(Failure::Denied),
            }
        })
    }
}

impl<B: Buffer> RemoteTier<B> for RegionTier<B> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        let act = |name| Outcome::Contained(name, Ok(self.region.may_contain(&key(name))));
        self.carry_out(keys, |_, _| Ok(()), act)
    }

    fn get_into(&self, gets: Vec<Get<B>>) -> Result<Ticket, Refused<Vec<Get<B>>>> {
        let mut scratch = vec![0; self.layout.block_bytes()];
        let act = |mut get: Get<B>| {
            let got = self.get(&mut get, &mut scratch);
            match got {
                Ok(()) => self.counters.hit(self.layout.block_bytes()),
                Err(NotGot::Miss(miss)) => self.counters.missed(miss),
                Err(NotGot::Failed(failure)) => self.counters.failed(failure),
            }
            Outcome::Got(get, got)
        };
        self.carry_out(gets, |index, get| self.check(index, &get.block, &get.buffer), act)
    }

    fn put_from(&self, puts: Vec<Put<B>>) -> Result<Ticket, Refused<Vec<Put<B>>>> {
        let act = |put: Put<B>| {
            let result = self.put(&put);
            match result {
                Ok(()) => self.counters.stored(self.layout.block_bytes()),
                Err(failure) => self.counters.failed(failure),
            }
            Outcome::Put(put, result)
        };
        self.carry_out(puts, |index, put| self.check(index, &put.block, &put.buffer), act)
    }

    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        let act = |name| {
            self.region.remove(&key(name));
            self.counters.removed();
            Outcome::Removed(name, Ok(()))
        };
        self.carry_out(keys, |_, _| Ok(()), act)
    }

    /// Never waits: accepted requests are already completed.
    fn poll(&self, done: &mut Vec<Completion<B>>, _wait: Duration) -> usize {
        if !self.is_here() {
            return 0;
        }
        let mut state = self.lock();
        let ready = std::mem::take(&mut state.done);
        let count = ready.len();
        state.in_flight -= count;
        drop(state);
        done.extend(ready);
        count
    }

    /// Also checks each entry of the region.
    fn stats(&self) -> Stats {
        let region = self.region.stats();
        self.counters.held(region.blocks, region.bytes as u64);
        let in_flight = if self.is_here() { self.lock().in_flight } else { 0 };
        self.counters.read(in_flight)
    }
}

impl<B> fmt::Debug for RegionTier<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionTier").field("layout", &self.layout).field("region", &self.region).finish_non_exhaustive()
    }
}

/// The layout of the region, which records and compares it.
fn of_region(layout: &Layout, capacity: u32) -> shared::Layout {
    let [model, dtype, kv_layout, shard, ..] = layout.fields().map(|(_, value)| value);
    let sizes = shared::Layout::new(layout.block_size() as u32, layout.block_bytes(), capacity);
    sizes.model(model).dtype(dtype).arrangement(kv_layout).shard(shard)
}

/// The region's key: 192 bits of the block's key, which depends on the namespace.
fn key(key: BlockKey) -> shared::Key {
    let half = |at: usize| u128::from_le_bytes(std::array::from_fn(|byte| key.as_bytes()[16 * at + byte]));
    shared::Key::from_parts(0, half(1), half(0))
}

/// Runs code that uses a caller's buffer, which may panic.
fn guarded<R>(act: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    caught(act).unwrap_or(Err(Failure::Buffer))
}
