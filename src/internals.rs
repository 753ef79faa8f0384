//! Internals that the models in `loom_tests` test in isolation.
//!
//! Thin wrappers, compiled only for model checkers, so that nothing else in the crate must be
//! public.
#![allow(unsafe_code)]
#![allow(missing_docs)]

#[cfg(radixkv_loom)]
use std::alloc::Layout;
#[cfg(radixkv_loom)]
use std::ptr::NonNull;

use crate::block::{BlockId, Pool};
use crate::cache::{self, KeptBlocks, Publication, Publications};
use crate::reclaim::{self, Canary, Idle, Node, Own, Ref};
#[cfg(radixkv_loom)]
use crate::reclaim::{Freed, Magazines, Memory};
use crate::sync::atomic::Ordering::Acquire;
use crate::sync::{self, Arc};
use crate::tree::{HotPoints, HotSlotId, Keyed, Leased, Map, Word};
use crate::{Builder, Lease};
#[cfg(radixkv_loom)]
use crate::{PrefixCache, Watermarks};

pub use crate::reclaim::track;
#[cfg(radixkv_loom)]
pub use crate::sync::{Loads, at_rest, explore_loads, exploring_apart};

/// The reclamation domain of one model.
#[derive(Debug)]
pub struct Domain(reclaim::Domain);

/// One participant of a domain.
#[derive(Debug)]
pub struct Local(reclaim::Local);

impl Default for Domain {
    fn default() -> Self {
        Self(reclaim::Domain::new())
    }
}

impl Domain {
    pub fn register(&self) -> Local {
        Local(self.0.register())
    }
}

/// The state word of a point.
#[derive(Debug)]
pub struct PointWord(Word);

/// The fields of a word that a drain reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenOut {
    pub dead: bool,
    pub leases: u64,
    pub children: u64,
}

impl PointWord {
    /// A proven point without leases or children.
    pub fn idle() -> Self {
        Self(Word::idle())
    }

    /// The same, and silent.
    pub fn silent() -> Self {
        let word = Word::idle();
        word.silence();
        Self(word)
    }

    /// Releases a lease; returns whether a thread may be waiting for blocks that this releases.
    pub fn release_to_waiters(&self) -> bool {
        self.0.release().is_awaited
    }

    pub fn listen(&self) -> TakenOut {
        TakenOut::of(self.0.listen())
    }

    /// Returns whether the caller must push; `None` if the point is dead.
    pub fn lease(&self) -> Option<bool> {
        match self.0.lease() {
            Leased::Proven { push, .. } => Some(push),
            Leased::Dead => None,
            Leased::Unproven | Leased::Full | Leased::Open(_) => unreachable!("a proven word with few leases"),
        }
    }

    pub fn release(&self) -> bool {
        self.0.release().push
    }

    /// Returns whether the word had an entry in the queue; `None` if it was held or dead.
    pub fn kill(&self) -> Option<bool> {
        self.0.kill().map(|before| before.is_queued())
    }

    pub fn add_child(&self) {
        assert!(self.0.add_child());
    }

    pub fn remove_child(&self) -> bool {
        self.0.remove_child().push
    }

    pub fn take_out(&self) -> TakenOut {
        TakenOut::of(self.0.take_out())
    }

    pub fn look(&self) -> TakenOut {
        TakenOut::of(self.0.look())
    }
}

impl TakenOut {
    fn of(word: crate::tree::Snapshot) -> Self {
        Self { dead: word.is_dead(), leases: word.leases(), children: word.children() }
    }
}

/// The word of a hot point without leases, with its attached slot.
#[derive(Debug)]
pub struct HotWord {
    word: Word,
    hot: HotPoints,
    slot: HotSlotId,
}

impl Default for HotWord {
    fn default() -> Self {
        let (word, slot) = (Word::idle(), HotSlotId::new(1).expect("not zero"));
        assert!(matches!(word.lease(), Leased::Proven { .. }) && word.attach(slot) && !word.release().push);
        Self { word, hot: HotPoints::new(1, 1), slot }
    }
}

impl HotWord {
    /// Leases and releases it; returns whether the caller must push the word onto the queue.
    pub fn use_once(&self) -> bool {
        loop {
            match self.word.lease() {
                Leased::Proven { .. } => return self.word.release().push,
                Leased::Open(slot) => {
                    if let Some(counted_on) = self.hot.enter(&self.word, slot, 0) {
                        self.hot.leave(counted_on);
                        return false;
                    }
                }
                Leased::Unproven | Leased::Dead | Leased::Full => unreachable!("a proven word with few leases"),
            }
        }
    }

    /// The evictor's part of a deflation; returns whether the word is idle afterwards.
    pub fn deflate(&self) -> bool {
        self.hot.close_idle(&self.word, self.slot) && {
            _ = self.word.detach();
            self.word.load(Acquire).is_idle()
        }
    }
}

/// The pool of blocks.
#[derive(Debug)]
pub struct Blocks(Pool);

impl Blocks {
    pub fn new(capacity: usize) -> Self {
        Self(Pool::new(capacity, capacity))
    }

    pub fn take(&self, n: usize) -> Option<Vec<BlockId>> {
        let mut blocks = Vec::new();
        self.0.try_take(n, &mut blocks).then_some(blocks)
    }

    pub fn take_these(&self, blocks: &[BlockId]) -> bool {
        self.0.take_these(blocks).is_ok()
    }

    pub fn give_back(&self, blocks: &[BlockId]) {
        self.0.give_back(blocks);
    }

    /// The free count, and the number of free bits.
    pub fn free(&self) -> (usize, usize) {
        (self.0.free(), self.0.count_bits())
    }
}

/// The counter of blocks that an eviction sink has.
#[derive(Debug, Default)]
pub struct SinkBlocks(KeptBlocks);

impl SinkBlocks {
    pub fn begin(&self, blocks: usize) {
        self.0.begin(blocks);
    }

    pub fn for_waiter(&self) -> usize {
        self.0.for_waiter()
    }

    pub fn end(&self, blocks: usize) {
        self.0.end(blocks);
    }
}

/// Requests of threads that wait for the evictor's lock, and the pool that gets the blocks they do
/// not take.
#[derive(Debug)]
pub struct Requests(Publications, Pool);

/// A published request.
#[derive(Debug)]
pub struct Request<'a>(Publication<'a>);

impl Default for Requests {
    fn default() -> Self {
        Self(Publications::new(true), Pool::empty(8))
    }
}

impl Requests {
    pub fn publish(&self, near: usize, blocks: usize) -> Option<Request<'_>> {
        self.0.publish(near, blocks, &self.1).map(Request)
    }

    /// Serves the published requests; `take` makes the blocks.
    pub fn serve(&self, mut take: impl FnMut(usize) -> Vec<BlockId>) {
        self.0.serve(|n, blocks| {
            blocks.extend(take(n));
            true
        });
    }

    /// Number of blocks that no request took.
    pub fn free(&self) -> usize {
        self.1.free()
    }
}

impl Request<'_> {
    pub fn is_served(&self) -> bool {
        self.0.is_served()
    }

    pub fn withdraw(&self) -> Option<Vec<BlockId>> {
        self.0.withdraw().map(Vec::from_iter)
    }
}

/// The bell that a worker sleeps on.
#[derive(Debug)]
pub struct Bell(sync::Bell);

impl Default for Bell {
    fn default() -> Self {
        Self(sync::Bell::new())
    }
}

impl Bell {
    pub fn ring(&self, unpark: impl FnOnce()) {
        self.0.ring(unpark);
    }

    pub fn end(&self, unpark: impl FnOnce()) {
        self.0.end(unpark);
    }

    pub fn wait(&self) -> bool {
        self.0.wait(None)
    }
}

/// A session's source of counted references to its cache, here for any value.
pub struct StrongRefs<T>(cache::StrongRefs<T>);

/// A reference from [`StrongRefs`].
pub struct StrongRef<T>(cache::StrongRef<T>);

impl<T> StrongRefs<T> {
    pub fn new(value: T) -> Self {
        Self(cache::StrongRefs::new(&Arc::new(value)))
    }

    pub fn take(&self) -> StrongRef<T> {
        StrongRef(self.0.take())
    }
}

impl<T> Clone for StrongRef<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> StrongRef<T> {
    pub fn value(&self) -> &T {
        &self.0
    }
}

/// A pool of idle participants with two slots, here for any value.
pub struct IdleSlots<T>(Idle<T, 2>);

impl<T> Default for IdleSlots<T> {
    fn default() -> Self {
        Self(Idle::new())
    }
}

impl<T> IdleSlots<T> {
    pub fn take(&self) -> Option<T> {
        self.0.take()
    }

    /// Lends a value while `body` runs.
    pub fn lend(&self, near: usize, make: impl FnOnce() -> T, body: impl FnOnce(&T)) {
        body(&self.0.lend(near, make));
    }

    pub fn put(&self, local: T) -> Option<T> {
        self.0.put(local)
    }
}

/// The memory of nodes, here with nodes of two words.
#[cfg(radixkv_loom)]
#[derive(Debug)]
pub struct NodeMemory(Box<Memory>);

/// A participant's free slots.
#[cfg(radixkv_loom)]
#[derive(Debug)]
pub struct Slots(Magazines);

/// Memory for a node.
#[cfg(radixkv_loom)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(NonNull<u8>);

// SAFETY: an address, which the model's threads pass on like a node.
#[cfg(radixkv_loom)]
unsafe impl Send for Slot {}

#[cfg(radixkv_loom)]
const NODE: Layout = Layout::new::<[usize; 2]>();

#[cfg(radixkv_loom)]
impl Default for NodeMemory {
    fn default() -> Self {
        Self(Box::new(Memory::new()))
    }
}

#[cfg(radixkv_loom)]
impl NodeMemory {
    pub fn slots(&self) -> Slots {
        Slots(Magazines::new())
    }

    pub fn take(&self, slots: &Slots) -> Slot {
        Slot(slots.0.allocate(NODE, &self.0, || ()))
    }

    /// Gives slots back together. Each must have been taken, and must no longer be used.
    pub fn give_back(&self, slots: &[Slot]) {
        let mut freed = Freed::new(&self.0, None);
        for slot in slots {
            // SAFETY: as the caller promised.
            unsafe { freed.add(slot.0, NODE) };
        }
    }

    /// Gives back the slots that a participant still has.
    pub fn empty_out(&self, slots: &Slots) {
        slots.0.empty_out(&self.0);
    }

    /// Sorts the slots of whole chains into their slabs.
    pub fn keep_none(&self) {
        self.0.cool_down();
    }

    pub fn slab_bytes(&self) -> usize {
        self.0.slab_bytes()
    }
}

/// The map, with simple entries.
#[derive(Debug)]
pub struct Entries(Map<MapEntry>);

#[derive(Debug)]
struct MapEntry {
    key: u32,
    value: u32,
    canary: Canary,
}

// SAFETY: an entry is a `Box`; dropping it follows no pointer.
unsafe impl Node for MapEntry {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

impl Keyed for MapEntry {
    fn key(&self) -> u32 {
        self.key
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self(Map::new())
    }
}

impl Entries {
    pub fn get(&self, key: u32, local: &Local) -> Option<u32> {
        self.0.get(key, &local.0.pin()).map(|entry| entry.value)
    }

    /// Inserts `value` if the key is free; else returns the value that is there.
    pub fn insert(&self, key: u32, value: u32, local: &Local) -> Result<(), Option<u32>> {
        let guard = local.0.pin();
        let new = Own::new(MapEntry { key, value, canary: Canary::new() }, &guard);
        // Inserts at the place that the lookup found, as an insert of the cache does.
        let (_, place) = self.0.get_to_change(key, &guard);
        match self.0.insert_at(place, None, new, &guard) {
            Ok(_) => Ok(()),
            Err((_, there)) => Err(there.map(|entry| entry.value)),
        }
    }

    /// Replaces the value of `key` and returns the old one.
    pub fn replace(&self, key: u32, value: u32, local: &Local) -> Option<u32> {
        let guard = local.0.pin();
        let there = self.0.get(key, &guard)?;
        let new = Own::new(MapEntry { key, value, canary: Canary::new() }, &guard);
        self.0.insert(Some(there), new, &guard).ok()?;
        let old = there.value;
        guard.retire(there);
        Some(old)
    }

    /// Removes the entry of `key`; returns its value if this call removed it.
    pub fn remove(&self, key: u32, local: &Local) -> Option<u32> {
        let guard = local.0.pin();
        let there = self.0.get(key, &guard)?;
        let value = there.value;
        self.0.remove(there, &guard).then(|| {
            guard.retire(there);
            value
        })
    }

    /// All entries, by key.
    pub fn all(&self, local: &Local) -> Vec<(u32, u32)> {
        let guard = local.0.pin();
        let mut all = Vec::new();
        self.0.for_each(&guard, &mut |entry: Ref<'_, MapEntry>| all.push((entry.key, entry.value)));
        all.sort_unstable();
        all
    }

    /// Bytes of branches; zero for a map with at most one entry.
    pub fn branch_bytes(&self) -> usize {
        self.0.branch_bytes()
    }
}

/// Allows `points` points to be hot at once.
pub fn hot_points(mut builder: Builder, points: usize) -> Builder {
    builder.hot_points = points;
    builder
}

/// Makes the lease's point hot, as contention does; returns whether it is hot afterwards.
pub fn inflate(lease: &Lease) -> bool {
    lease.inflate()
}

/// A background evictor without its thread.
#[cfg(radixkv_loom)]
pub struct Background {
    bell: Arc<sync::Bell>,
    look: Box<dyn Fn() + Send>,
}

#[cfg(radixkv_loom)]
impl Background {
    /// Becomes the evictor of `cache`, and keeps the cache alive.
    pub fn of(cache: &PrefixCache, watermarks: Watermarks) -> Self {
        let (bell, look) = cache.evict_beside(watermarks);
        Self { bell, look: Box::new(look) }
    }

    /// Does one turn of the thread.
    pub fn look(&self) {
        (self.look)();
    }

    /// Sleeps until the bell is rung.
    pub fn sleep(&self) {
        assert!(self.bell.wait(None));
    }
}

/// Makes each thread that waits for the evictor publish its request.
pub fn publishing(mut builder: Builder) -> Builder {
    builder.publishing = true;
    builder
}

/// Lets threads wait for blocks.
pub fn waiting(mut builder: Builder) -> Builder {
    builder.waiting = true;
    builder
}
