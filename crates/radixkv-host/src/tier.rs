//! The host tier: blocks that left caches, found by their tokens.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use radixkv::{NamespaceName, Token};

use crate::{
    eras::Eras,
    host_match::HostMatch,
    index::{Index, Path, Place},
    memory::Memory,
    slots::{Slots, Unpinned},
    stats::Counters,
};

/// The id of a block of a host tier: which part of its memory it is.
pub type HostBlock = u32;

/// Blocks of keys and values in host memory, under the caches of a process.
///
/// A handle: clones share one tier, which lives as long as any of them. It outlives the caches: what they left is found by
/// the next one, and listed by [`leftovers`](Self::leftovers).
///
/// Its index has holes: a block may be here while those before it are on a device, or nowhere. A block is named by all
/// tokens up to its end, which every lookup compares in full, and by the namespace.
///
/// When it is full, the blocks go first whose arrival or last use is the longest ago; of one arrival the deepest first.
///
/// Every verb takes the tier's lock for as long as it looks at the index, and never while bytes are copied. A cache's own
/// verbs never take it. Verbs allocate.
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
    state: Mutex<State>,
}

/// What the lock guards.
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) slots: Slots,
    pub(crate) counters: Counters,
    pub(crate) eras: Eras,
}

impl Inner {
    pub(crate) fn new(block_size: usize, block_bytes: usize, blocks: usize, capacity: usize, memory: Memory) -> Self {
        let state = State {
            index: Index::new(block_size),
            slots: Slots::new(blocks, capacity),
            counters: Counters::default(),
            eras: Eras::default(),
        };
        Self { block_size, block_bytes, blocks, capacity, memory, state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // No verb runs code of the caller's under the lock.
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

    /// Blocks that it holds now.
    pub fn cached_blocks(&self) -> usize {
        let counts = self.inner.lock().slots.counts();
        counts.listed + counts.pinned
    }

    /// Pins the blocks that continue the first `from` tokens of a sequence, up to the first hole, and counts as a use of them.
    ///
    /// `tokens` is the whole sequence. `from` is where a cache's own match ended, and need not be a multiple of the block size:
    /// the first block is the one in which token `from` lies. In a namespace of bigrams `from` counts tokens that have keys
    /// and values, as a lease does.
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
        let first = from / self.inner.block_size;
        let mut state = self.inner.lock();
        let blocks = state.blocks_from(namespace, tokens, first);
        for &(block, _) in &blocks {
            state.slots.pin(block);
        }
        let found = HostMatch::new(Arc::clone(&self.inner), from, blocks);
        state.counters.looked_up(found.blocks().len());
        found
    }

    /// Tokens that [`match_from`](Self::match_from) would find. Pins nothing, and is no use.
    pub fn peek(&self, namespace: &NamespaceName, tokens: &[Token], from: usize) -> usize {
        let first = from / self.inner.block_size;
        let found = self.inner.lock().blocks_from(namespace, tokens, first).len();
        if found == 0 { 0 } else { (first + found) * self.inner.block_size - from }
    }

    /// Removes everything. Blocks that are being read stay in their place until that is over; what is on its way here does not
    /// arrive.
    pub fn clear(&self) {
        let mut state = self.inner.lock();
        let names: Vec<NamespaceName> = state.index.held().map(|(name, _)| name.clone()).collect();
        for name in &names {
            state.clear(name);
        }
        state.eras.clear();
    }
}

impl State {
    /// The blocks that continue a sequence from block `first` on, up to the first hole.
    fn blocks_from(&self, namespace: &NamespaceName, tokens: &[Token], first: usize) -> Vec<(HostBlock, Place)> {
        let Some(path) = self.index.path(namespace, tokens) else { return Vec::new() };
        (first..).map_while(|block| self.held(&path, block)).collect()
    }

    /// The block of this number on a path.
    pub(crate) fn held(&self, path: &Path, block: usize) -> Option<(HostBlock, Place)> {
        let place = path.place(block)?;
        Some((self.index.get(place)?, place))
    }

    /// Makes those blocks of a sequence the newest that are here, the first one as the newest of them; which these are.
    pub(crate) fn refresh(&mut self, namespace: &NamespaceName, tokens: &[Token], numbers: Range<usize>) -> Vec<bool> {
        let Some(path) = self.index.path(namespace, tokens) else { return vec![false; numbers.len()] };
        let held: Vec<_> = numbers.map(|number| self.held(&path, number)).collect();
        for &(block, _) in held.iter().rev().flatten() {
            self.slots.refresh(block);
        }
        held.iter().map(Option::is_some).collect()
    }

    /// Reserves a block; evicts others for it, if that helps.
    pub(crate) fn reserve(&mut self) -> Option<HostBlock> {
        loop {
            if let Some(block) = self.slots.reserve() {
                return Some(block);
            }
            if !self.evict() {
                return None;
            }
        }
    }

    /// Evicts what is beyond the capacity.
    fn keep_to_capacity(&mut self) {
        while self.slots.is_over(0) && self.evict() {}
    }

    fn evict(&mut self) -> bool {
        let Some(place) = self.slots.evict() else { return false };
        self.index.remove(place);
        self.counters.evicted_blocks += 1;
        true
    }

    /// Ends pins, so that the first block is the newest afterwards.
    pub(crate) fn unpin(&mut self, blocks: impl DoubleEndedIterator<Item = HostBlock>) {
        let mut listed = false;
        for block in blocks.rev() {
            listed |= self.slots.unpin(block) == Unpinned::Listed;
        }
        if listed {
            self.keep_to_capacity();
        }
    }

    /// Takes a block out of the index.
    pub(crate) fn remove(&mut self, block: HostBlock) -> bool {
        let place = self.slots.detach(block);
        if let Some(place) = place {
            self.index.remove(place);
        }
        place.is_some()
    }

    /// Removes a namespace.
    pub(crate) fn clear(&mut self, namespace: &NamespaceName) {
        let mut blocks = Vec::new();
        self.index.clear(namespace, &mut blocks);
        self.counters.cleared_blocks += blocks.len() as u64;
        for block in blocks {
            self.slots.detach(block);
        }
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
