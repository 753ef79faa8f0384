//! What the tests of tiers over tiers share: an engine whose bytes follow from tokens, and remote
//! tiers that fail when they are told to.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod gated;

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use radixkv::{Keys, Namespace, PrefixCache, Token};
use radixkv_host::{
    DeviceMemory, HostBuilder, HostTier, RemoteWait, TierMode, TieredCache, TieredSession,
    radixkv_tiers::{
        Block, BlockKey, Completion, Failure, FileTier, Get, Layout, NotGot, Outcome, Put, Refusal, Refused,
        RemoteTier, Stats, Ticket, Tier,
    },
};

/// Tokens and bytes of a block.
pub const SIZE: usize = 4;
pub const TOKEN_BYTES: usize = 16;
pub const BLOCK_BYTES: usize = SIZE * TOKEN_BYTES;
/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn layout() -> Layout {
    Layout::new("model", "bf16", SIZE, BLOCK_BYTES).expect("a layout")
}

/// A folder of the test's own: in memory, where the system has one there.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder")
}

/// A tier of files for so many blocks.
pub fn files(folder: &Path, blocks: u64) -> Tier<Vec<u8>> {
    files_that_accept(1024, folder, blocks)
}

/// The same, for so many items at once.
pub fn files_that_accept(at_once: usize, folder: &Path, blocks: u64) -> Tier<Vec<u8>> {
    let tier = FileTier::new(folder, layout(), blocks * 4096).threads(2).direct_io(false).timeout(PATIENCE);
    tier.max_in_flight(at_once).open().expect("the folder is free")
}

/// What a [`Faulty`] tier does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    None,
    /// Takes no batch.
    Refuses,
    /// Says of everything that it is not reachable.
    Fails,
    /// Says that it has everything, and is not reachable when it is read.
    FailsGets,
    /// Says nothing, until it is told to do otherwise.
    IsSilent,
    /// Returns no buffer of a read, until it is told to do otherwise.
    KeepsReads,
    /// The same, of a put.
    KeepsPuts,
    /// Panics when it is asked.
    Panics,
}

/// A tier that fails.
pub struct Faulty<T> {
    pub tier: T,
    /// Keys that it was asked for by `contains`.
    pub asked: AtomicUsize,
    fault: AtomicU8,
    withheld: Mutex<Vec<Completion<Vec<u8>>>>,
}

impl<T> Faulty<T> {
    pub fn new(tier: T) -> Arc<Self> {
        Arc::new(Self { tier, asked: AtomicUsize::new(0), fault: AtomicU8::new(0), withheld: Mutex::default() })
    }

    pub fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Relaxed);
    }

    fn fault(&self) -> Fault {
        let all = [
            Fault::None,
            Fault::Refuses,
            Fault::Fails,
            Fault::FailsGets,
            Fault::IsSilent,
            Fault::KeepsReads,
            Fault::KeepsPuts,
            Fault::Panics,
        ];
        all[usize::from(self.fault.load(Relaxed))]
    }

    fn takes<B>(&self, batch: B) -> Result<B, Refused<B>> {
        match self.fault() {
            Fault::Refuses => Err(Refused { batch, reason: Refusal::Full { asked: 1, in_flight: 1, max: 1 } }),
            Fault::Panics => std::panic::resume_unwind(Box::new("planned")),
            _ => Ok(batch),
        }
    }

    fn changed(&self, completion: Completion<Vec<u8>>) -> Completion<Vec<u8>> {
        let down = Failure::Unreachable;
        let outcome = match (self.fault(), completion.outcome) {
            (Fault::Fails, Outcome::Contained(key, _)) => Outcome::Contained(key, Err(down)),
            (Fault::FailsGets, Outcome::Contained(key, _)) => Outcome::Contained(key, Ok(true)),
            (Fault::Fails | Fault::FailsGets, Outcome::Got(mut get, _)) => {
                get.buffer.fill(0xee);
                Outcome::Got(get, Err(NotGot::Failed(down)))
            }
            (Fault::Fails, Outcome::Put(put, _)) => Outcome::Put(put, Err(down)),
            (_, other) => other,
        };
        Completion { outcome, ..completion }
    }
}

impl<T: RemoteTier<Vec<u8>>> RemoteTier<Vec<u8>> for Faulty<T> {
    fn layout(&self) -> &Layout {
        self.tier.layout()
    }

    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        self.asked.fetch_add(keys.len(), Relaxed);
        self.tier.contains(self.takes(keys)?)
    }

    fn get_into(&self, gets: Vec<Get<Vec<u8>>>) -> Result<Ticket, Refused<Vec<Get<Vec<u8>>>>> {
        self.tier.get_into(self.takes(gets)?)
    }

    fn put_from(&self, puts: Vec<Put<Vec<u8>>>) -> Result<Ticket, Refused<Vec<Put<Vec<u8>>>>> {
        self.tier.put_from(self.takes(puts)?)
    }

    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        self.tier.remove(keys)
    }

    fn poll(&self, done: &mut Vec<Completion<Vec<u8>>>, wait: Duration) -> usize {
        if self.fault() == Fault::Panics {
            std::panic::resume_unwind(Box::new("planned"));
        }
        let mut withheld = self.withheld.lock().expect("no panic");
        self.tier.poll(&mut withheld, wait);
        if self.fault() == Fault::IsSilent {
            return 0;
        }
        let fault = self.fault();
        let is_kept = |end: &Completion<_>| match end.outcome {
            Outcome::Got(..) => fault == Fault::KeepsReads,
            Outcome::Put(..) => fault == Fault::KeepsPuts,
            _ => false,
        };
        let (kept, ready): (Vec<_>, Vec<_>) = withheld.drain(..).partition(is_kept);
        *withheld = kept;
        let count = ready.len();
        done.extend(ready.into_iter().map(|completion| self.changed(completion)));
        count
    }

    fn stats(&self) -> Stats {
        self.tier.stats()
    }
}

/// A device, over a host.
pub struct Engine {
    pub tiers: TieredCache,
    pub memory: Arc<DeviceMemory>,
}

/// Tokens that were found on the device, in the host, in remote tiers.
pub type Found = (usize, usize, usize);

/// A host whose remote tiers are waited for even if their threads are stopped for long.
pub fn host(blocks: usize) -> HostBuilder {
    HostTier::builder(SIZE, blocks).block_bytes(BLOCK_BYTES).remote_timeout(4 * PATIENCE)
}

impl Engine {
    /// A device of so many blocks, that waits for remote tiers.
    pub fn new(device: usize, host: &HostTier, mode: TierMode) -> Self {
        Self::waiting(device, host, mode, RemoteWait::All)
    }

    /// A device of so many blocks.
    pub fn waiting(device: usize, host: &HostTier, mode: TierMode, wait: RemoteWait) -> Self {
        Self::over(PrefixCache::builder(SIZE, device).build().expect("a cache"), host, mode, wait)
    }

    /// The same over a cache.
    pub fn over(cache: PrefixCache, host: &HostTier, mode: TierMode, wait: RemoteWait) -> Self {
        let memory = Arc::new(DeviceMemory::new(SIZE, BLOCK_BYTES, cache.capacity_blocks()));
        let tiers = TieredCache::builder(&cache, host, Arc::clone(&memory)).mode(mode).remote_wait(wait);
        Self { tiers: tiers.build().expect("they go together"), memory }
    }

    pub fn space(&self) -> Namespace {
        self.tiers.cache().default_namespace()
    }

    /// Serves a prompt in whole blocks; every byte that is found is checked.
    pub fn serve(&self, prompt: &[Token]) -> Found {
        self.serve_in(&self.tiers.session(), &self.space(), prompt).expect("there is room")
    }

    pub fn serve_in(&self, session: &TieredSession, namespace: &Namespace, tokens: &[Token]) -> Option<Found> {
        let start = session.acquire(namespace, tokens, 0).ok()?;
        let found = (start.device_tokens, start.host_tokens, start.remote_tokens);
        let table: Vec<u32> = start.cached.iter().chain(start.blocks.blocks()).copied().collect();
        for at in 0..start.len_tokens() {
            self.check(namespace, tokens, table[at / SIZE], at);
        }
        let offset = usize::from(namespace.keys() == Keys::Bigrams);
        for at in start.len_tokens()..tokens.len().saturating_sub(offset) {
            self.compute(namespace, tokens, table[at / SIZE], at);
        }
        let whole = tokens.len().saturating_sub(offset) / SIZE;
        let mut blocks = start.blocks;
        let own = blocks.split(whole - start.cached.len());
        let inserted = session.insert(namespace, &start.lease, tokens, own).ok()?;
        for (number, &block) in (start.cached.len()..).zip(&inserted.blocks) {
            (number * SIZE..(number + 1) * SIZE).for_each(|at| self.check(namespace, tokens, block, at));
        }
        Some(found)
    }

    /// Evicts everything from the device.
    pub fn evict_all(&self) {
        self.tiers.evict(self.tiers.cache().capacity_blocks());
    }

    pub fn compute(&self, namespace: &Namespace, tokens: &[Token], block: u32, at: usize) {
        let to = at % SIZE * TOKEN_BYTES;
        let own = pattern(namespace, tokens, at);
        self.memory.write(block, |bytes| bytes[to..to + TOKEN_BYTES].copy_from_slice(&own));
    }

    pub fn check(&self, namespace: &Namespace, tokens: &[Token], block: u32, at: usize) {
        let from = at % SIZE * TOKEN_BYTES;
        let own = pattern(namespace, tokens, at);
        let is_right = self.memory.read(block, |bytes| bytes[from..from + TOKEN_BYTES] == own);
        assert!(is_right, "token {at} of {tokens:?} in {namespace:?}, block {block}");
    }
}

/// What stands for the keys and values of token number `at`: of its namespace and of all tokens
/// that it depends on.
pub fn pattern(namespace: &Namespace, tokens: &[Token], at: usize) -> [u8; TOKEN_BYTES] {
    let seen = at + 1 + usize::from(namespace.keys() == Keys::Bigrams);
    let name = namespace.name();
    let salt = name.parts().flat_map(str::bytes).map(u64::from);
    let words = salt.chain(tokens[..seen].iter().map(|&token| u64::from(token)));
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let hash = words.fold(name.keys() as u64, mix);
    let mut bytes = [0; TOKEN_BYTES];
    bytes[..8].copy_from_slice(&hash.to_le_bytes());
    bytes[8..].copy_from_slice(&mix(hash, 1).to_le_bytes());
    bytes
}

/// A prompt of whole blocks that shares none with another number's.
pub fn prompt(number: u32, blocks: usize) -> Vec<Token> {
    (0..(blocks * SIZE) as u32).map(|at| number * 1000 + at).collect()
}

/// The blocks of a prompt of the default namespace, as the remote tiers name them.
pub fn remote_blocks(tokens: &[Token]) -> Vec<Block> {
    layout().blocks(0_u64.to_le_bytes(), tokens)
}
