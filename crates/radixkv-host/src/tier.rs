//! The host tier: blocks that caches evicted, found by their tokens. `tiered` puts it below a
//! cache. One lock protects its state (index, pool, clear epochs); bytes are copied outside the
//! lock, by the invariants of `memory`.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, OnceLock, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use radixkv::{NamespaceName, Token};

use crate::{
    admission::{Admission, Fingerprints, Remembered},
    departing::Departing,
    eras::Eras,
    host_match::HostMatch,
    index::{Index, Path, Place},
    lifetimes::Lifetimes,
    memory::Memory,
    remote::{Generations, Remote},
    slots::Slots,
    stats::Counters,
    sync::{Mutex, MutexGuard},
    write_policy::WritePolicy,
};

/// The id of a block of a host tier: its index in the tier's memory.
pub type HostBlock = u32;

/// A tier of KV blocks in host memory, below the caches of a process.
///
/// A handle: clones share one tier, which lives as long as any of them. It outlives the caches: a
/// later cache finds the blocks of an earlier one, and [`leftovers`](Self::leftovers) lists them.
///
/// Its index has holes: a block may be here while the blocks before it are on a device, or nowhere.
/// A block is identified by its namespace and by all tokens up to its end, which every lookup
/// compares in full.
///
/// When the tier is full, it evicts the block with the oldest arrival or last use; among blocks
/// that arrived together, the deepest first.
///
/// Methods hold the tier's lock while they use the index, never while bytes are copied. A cache's
/// own methods never take it. Methods allocate.
#[derive(Clone)]
pub struct HostTier {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    block_size: usize,
    block_bytes: usize,
    blocks: usize,
    capacity: usize,
    memory: Memory,
    /// The tiers below, if there are any.
    remote: OnceLock<Remote>,
    /// Hashes of blocks, for an admission policy that remembers them.
    pub(crate) fingerprints: Fingerprints,
    pub(crate) admission: Admission,
    /// A copy of the state's clear epoch, for threads that must not take the lock.
    era: AtomicU64,
    state: Mutex<State>,
}

/// The state that the lock protects.
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) slots: Slots,
    pub(crate) counters: Counters,
    pub(crate) eras: Eras,
    pub(crate) generations: Generations,
    pub(crate) lifetimes: Lifetimes,
    /// Blocks that were offered once, if the admission policy needs that.
    pub(crate) remembered: Option<Remembered>,
    /// How many offloads were started.
    pub(crate) offloads: u64,
    /// Whether evicted blocks are written to remote tiers.
    pub(crate) departs: bool,
}

/// The parameters of a tier.
pub(crate) struct Parts {
    pub(crate) block_size: usize,
    pub(crate) block_bytes: usize,
    pub(crate) blocks: usize,
    pub(crate) capacity: usize,
    pub(crate) memory: Memory,
    pub(crate) admission: Admission,
    pub(crate) lifetimes: Lifetimes,
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { block_size, block_bytes, blocks, capacity, memory, admission, lifetimes } = parts;
        let state = State {
            index: Index::new(block_size),
            slots: Slots::new(blocks, capacity),
            counters: Counters::default(),
            eras: Eras::default(),
            generations: Generations::new(),
            lifetimes,
            remembered: admission.memory(),
            offloads: 0,
            departs: false,
        };
        Self {
            block_size,
            block_bytes,
            blocks,
            capacity,
            memory,
            remote: OnceLock::new(),
            fingerprints: Fingerprints::default(),
            admission,
            era: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// The current clear epoch. The clears counted so far do not concern blocks that leave a cache
    /// after this call. A clear in progress may not be counted yet.
    pub(crate) fn era(&self) -> u64 {
        // Acquire: as `set_era`.
        self.era.load(Acquire)
    }

    /// The caller holds the lock.
    pub(crate) fn set_era(&self, era: u64) {
        // Release: a thread that loads this epoch is ordered after the clear.
        self.era.store(era, Release);
    }

    /// Attaches the remote tiers, once.
    pub(crate) fn set_remote(&self, remote: Remote) {
        self.lock().departs = remote.write() == WritePolicy::Back;
        let is_first = self.remote.set(remote).is_ok();
        debug_assert!(is_first, "a tier is built once");
    }

    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.remote.get()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // No method runs the caller's code under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl HostTier {
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// Tokens in a block.
    pub fn block_size(&self) -> usize {
        self.inner.block_size
    }

    /// Bytes of a block; 0 if the tier only counts.
    pub fn block_bytes(&self) -> usize {
        self.inner.block_bytes
    }

    /// Blocks that the tier may hold.
    pub fn capacity_blocks(&self) -> usize {
        self.inner.capacity
    }

    /// Blocks that are cached, or removed but still being read.
    pub fn cached_blocks(&self) -> usize {
        let counts = self.inner.lock().slots.counts();
        counts.listed + counts.pinned
    }

    /// Pins the blocks that continue the first `from` tokens of a sequence, up to the first missing
    /// one, and counts as a use of them.
    ///
    /// `tokens` is the whole sequence. `from` is the end of a cache's own match, and need not be a
    /// multiple of the block size: the first block is the one that contains token `from`. In a
    /// namespace of bigrams `from` counts tokens that have keys and values, as a lease does.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// let tier = radixkv_host::HostTier::builder(2, 8).build()?;
    /// let space = cache.default_namespace().name();
    /// let found = tier.match_from(&space, &[1, 2, 3, 4], 2);
    /// assert_eq!(found.len_tokens(), 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn match_from(&self, namespace: &NamespaceName, tokens: &[Token], from: usize) -> HostMatch {
        let mut state = self.inner.lock();
        let blocks = state.pin_from(namespace, tokens, from / self.inner.block_size);
        state.counters.looked_up(blocks.len());
        drop(state);
        HostMatch::new(Arc::clone(&self.inner), from, blocks)
    }

    /// As [`match_from`](Self::match_from), but not counted as a lookup.
    pub(crate) fn pinned_from(&self, namespace: &NamespaceName, tokens: &[Token], from: usize) -> HostMatch {
        let blocks = self.inner.lock().pin_from(namespace, tokens, from / self.inner.block_size);
        HostMatch::new(Arc::clone(&self.inner), from, blocks)
    }

    /// An empty match after the first `from` tokens of a sequence. Takes no lock.
    pub(crate) fn nothing_from(&self, from: usize) -> HostMatch {
        HostMatch::new(Arc::clone(&self.inner), from, Vec::new())
    }

    /// Tokens that [`match_from`](Self::match_from) would find. Pins nothing, and does not count as
    /// a use.
    pub fn peek(&self, namespace: &NamespaceName, tokens: &[Token], from: usize) -> usize {
        let first = from / self.inner.block_size;
        let found = self.inner.lock().blocks_from(namespace, tokens, first).len();
        if found == 0 { 0 } else { (first + found) * self.inner.block_size - from }
    }

    /// Removes all blocks. Blocks that are being read keep their memory until the reads end; blocks
    /// in flight to the tier are not stored. Blocks in remote tiers are not removed: this tier does
    /// not find them any more, whichever process stored them, but other processes do.
    pub fn clear(&self) {
        drop(self.keep_all_out());
    }
}

impl State {
    /// The blocks that continue a sequence from block `first` on, up to the first hole or the first
    /// expired block.
    pub(crate) fn blocks_from(
        &mut self,
        namespace: &NamespaceName,
        tokens: &[Token],
        first: usize,
    ) -> Vec<(HostBlock, Place)> {
        let Some(path) = self.index.path(namespace, tokens) else { return Vec::new() };
        // Each block has at least one token, so `tokens.len()` is an upper bound of the block
        // numbers.
        let mut held: Vec<_> = (first..tokens.len()).map_while(|block| self.held(&path, block)).collect();
        if let Some(expired) = held.iter().position(|&(block, place)| self.is_expired(block, place)) {
            self.expire(namespace, tokens, first + expired..first + held.len());
            held.truncate(expired);
        }
        held
    }

    /// Pins the blocks that continue a sequence from block `first` on.
    fn pin_from(&mut self, namespace: &NamespaceName, tokens: &[Token], first: usize) -> Vec<(HostBlock, Place)> {
        let blocks = self.blocks_from(namespace, tokens, first);
        blocks.iter().for_each(|&(block, _)| self.slots.pin(block));
        blocks
    }

    /// The block with this number on a path.
    pub(crate) fn held(&self, path: &Path, block: usize) -> Option<(HostBlock, Place)> {
        let place = path.place(block)?;
        Some((self.index.get(place)?, place))
    }

    /// Makes the given blocks of a sequence the most recently used, the first one the most recent.
    /// Returns for each whether the tier holds it.
    pub(crate) fn refresh(&mut self, namespace: &NamespaceName, tokens: &[Token], numbers: Range<usize>) -> Vec<bool> {
        let Some(path) = self.index.path(namespace, tokens) else { return vec![false; numbers.len()] };
        let held: Vec<_> = numbers.map(|number| self.held(&path, number)).collect();
        for &(block, _) in held.iter().rev().flatten() {
            self.slots.refresh(block);
        }
        held.iter().map(Option::is_some).collect()
    }

    /// Reserves a block, after evicting one if necessary. The bytes of an evicted block are
    /// unchanged until the caller writes to it.
    pub(crate) fn reserve(&mut self, leaving: &mut Vec<Departing>) -> Option<HostBlock> {
        self.slots.reserve().or_else(|| {
            let (block, place) = self.slots.replace()?;
            self.leave(block, place, leaving);
            Some(block)
        })
    }

    /// Removes a block from the index.
    pub(crate) fn remove(&mut self, block: HostBlock) -> bool {
        let place = self.slots.detach(block);
        if let Some(place) = place {
            self.index.remove(place);
        }
        place.is_some()
    }

    /// Clears a namespace, whose blocks in remote tiers are then not found.
    pub(crate) fn clear(&mut self, namespace: &NamespaceName) {
        self.generations.clear(namespace);
        let mut blocks = Vec::new();
        self.index.clear(namespace, &mut blocks);
        self.counters.cleared_blocks += blocks.len() as u64;
        for block in blocks {
            self.slots.detach(block);
        }
    }

    /// Clears all namespaces; blocks in remote tiers are then not found.
    pub(crate) fn clear_all(&mut self) {
        let names: Vec<NamespaceName> = self.index.held().map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.clear(name);
        }
        self.generations.clear_all();
    }
}

impl fmt::Debug for HostTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTier")
            .field("block_size", &self.inner.block_size)
            .field("block_bytes", &self.inner.block_bytes)
            .field("capacity_blocks", &self.inner.capacity)
            .finish_non_exhaustive()
    }
}
