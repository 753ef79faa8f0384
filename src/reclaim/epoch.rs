//! The real reclaimer: `crossbeam-epoch` with a collector of the cache's own.
//!
//! A default collector is shared by every crate in the process, and one stalled reader anywhere
//! would hold back our memory; a collector of our own also lets a cache drop clean.

use std::alloc::Layout;
use std::cell::{Cell, RefCell, RefMut};
use std::ptr::NonNull;

use crossbeam_epoch as ce;

use super::memory::{Freed, Magazines, Memory};
use super::node::end;
use super::records::Records;
use super::{FreedBytes, Node, Record, Ref};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::prefetch;

/// Garbage that a participant may keep before it hands it over and tries to reclaim: so many bytes,
/// or so many nodes.
const FLUSH_BYTES: usize = 64 << 10;
const FLUSH_NODES: usize = 256;
/// What is handed over together, at most: a turn of the evictor ends before it hands over.
const MOST_NODES: usize = 2 * FLUSH_NODES;

/// How many nodes ahead memory is asked for while others are freed: a line of each.
const AHEAD: usize = 12;
type Line = [u64; 8];

/// Slabs may have so many bytes beyond twice what is in use before freed slots are sorted in.
const SPARE_BYTES: usize = 2 << 20;

/// Passes without effect after which nothing more can be freed: one hands garbage over, two move
/// the epoch, one frees.
const EPOCHS: usize = 4;
/// Batches that a pass frees: their places in the epochs' queue are one more batch, which frees no
/// node.
const BATCHES: usize = 8;

/// All that one cache reclaims.
#[derive(Debug)]
pub(crate) struct Domain {
    // Dropped first: the garbage it frees still counts its bytes and goes back to the memory.
    collector: ce::Collector,
    shared: Box<Shared>,
    /// How many participants were registered so far.
    #[cfg(test)]
    registered: AtomicUsize,
}

/// What participants and garbage find by an address.
#[derive(Debug)]
struct Shared {
    freed: FreedBytes,
    /// Bytes that were handed over and are not freed yet: a gauge.
    garbage: AtomicUsize,
    records: Records,
    memory: Memory,
}

impl Shared {
    /// Bytes of nodes that are allocated and not yet freed: a gauge.
    fn bytes(&self) -> usize {
        self.freed.left_of(&self.records)
    }

    /// Sorts the slots that are kept ready into their slabs, if slabs have much more than what is
    /// in use: then some may go back to the system.
    fn sort_slots_in(&self) {
        if self.memory.slab_bytes() > 2 * self.bytes() + SPARE_BYTES {
            self.memory.sort_in();
        }
    }
}

impl Domain {
    pub(crate) fn new() -> Self {
        let shared = Shared {
            freed: FreedBytes::new(),
            garbage: AtomicUsize::new(0),
            records: Records::new(),
            memory: Memory::new(),
        };
        Self {
            collector: ce::Collector::new(),
            shared: Box::new(shared),
            #[cfg(test)]
            registered: AtomicUsize::new(0),
        }
    }

    /// A participant; the domain must outlive it.
    pub(crate) fn register(&self) -> Local {
        #[cfg(test)]
        // Relaxed: a count.
        self.registered.fetch_add(1, Relaxed);
        Local {
            handle: self.collector.register(),
            shared: NonNull::from(&*self.shared),
            retired: Cell::new(0),
            limbo: RefCell::new(Vec::new()),
            keeps: Cell::new(false),
            magazines: Magazines::new(),
            record: self.shared.records.hold(),
        }
    }

    /// Bytes of nodes that are allocated and not yet freed, garbage included: a gauge.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.bytes()
    }

    /// What all participants have counted, those that have gone too.
    pub(crate) fn records(&self) -> &Records {
        &self.shared.records
    }

    /// How many participants were registered so far.
    #[cfg(test)]
    pub(crate) fn registered(&self) -> usize {
        self.registered.load(Relaxed)
    }

    /// Bytes of nodes that were unlinked and handed over, and that a pinned thread may still see:
    /// as many as they counted then.
    pub(crate) fn garbage_bytes(&self) -> usize {
        // Relaxed: a gauge.
        self.shared.garbage.load(Relaxed)
    }

    /// Gives the system back what an idle cache does not need.
    pub(crate) fn cool_down(&self) {
        self.shared.memory.cool_down();
    }

    /// Bytes that the nodes' slabs have from the system.
    pub(crate) fn slab_bytes(&self) -> usize {
        self.shared.memory.slab_bytes()
    }
}

/// One participant.
#[derive(Debug)]
pub(crate) struct Local {
    handle: ce::LocalHandle,
    shared: NonNull<Shared>,
    /// Bytes in `limbo`.
    retired: Cell<usize>,
    /// What it has retired and not handed over.
    limbo: RefCell<Vec<Retired>>,
    /// It hands over only when it is asked to.
    keeps: Cell<bool>,
    magazines: Magazines,
    record: Record,
}

/// A node that was retired: its address, and how one of its type is freed.
#[derive(Debug)]
struct Retired {
    node: NonNull<()>,
    bytes: usize,
    free: unsafe fn(NonNull<()>, &mut Freed<'_>) -> usize,
}

// SAFETY: a node that was retired belongs to whichever thread frees it.
unsafe impl Send for Retired {}

/// Nodes that were handed over together, and are freed together.
struct Batch {
    nodes: Vec<Retired>,
    bytes: usize,
    shared: NonNull<Shared>,
}

/// Ends a node and adds its memory to what is freed; the bytes that it counted at the end.
///
/// # Safety
///
/// `node` is one of this type, unlinked, and every guard that could have seen it is gone (I1).
unsafe fn free_retired<T: Node>(node: NonNull<()>, freed: &mut Freed<'_>) -> usize {
    let node = node.cast::<T>();
    // SAFETY: as the caller promised.
    let bytes = unsafe { node.as_ref() }.bytes();
    // SAFETY: as the caller promised.
    let (memory, layout) = unsafe { end(node) };
    // SAFETY: nodes are in the memory of their cache, and this one has ended.
    unsafe { freed.add(memory, layout) };
    bytes
}

impl Batch {
    /// # Safety
    ///
    /// Every guard that could have seen one of the nodes is gone (I1).
    unsafe fn free(self) {
        // SAFETY: the domain drops its garbage before what it shares.
        let shared = unsafe { self.shared.as_ref() };
        let mut freed = Freed::new(&shared.memory);
        let mut bytes = 0;
        for (at, Retired { node, free, .. }) in self.nodes.iter().enumerate() {
            // Another thread retired them, perhaps, and long ago.
            let later = self.nodes.get(at + AHEAD);
            later.into_iter().for_each(|later| prefetch(later.node.as_ptr().cast::<Line>()));
            // SAFETY: as the caller promised; each node is in one batch, once (I1).
            bytes += unsafe { free(*node, &mut freed) };
        }
        shared.freed.add(bytes);
        // Relaxed: a gauge.
        shared.garbage.fetch_sub(self.bytes, Relaxed);
    }
}

// SAFETY: a participant is used by one thread at a time (it is not `Sync`) and nothing in it
// belongs to a thread: the handle is a pointer into the collector, which it keeps alive. It may be
// moved only while no guard borrows it.
unsafe impl Send for Local {}

impl Local {
    fn shared(&self) -> &Shared {
        // SAFETY: the domain outlives its participants.
        unsafe { self.shared.as_ref() }
    }

    /// Where it counts what its users do.
    #[inline]
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Reclaims what no thread can see any more, down to the slots where memory is sparse. Call it
    /// without a guard: each pass may advance the epoch once, and frees some.
    pub(crate) fn reclaim(&self) {
        self.hand_over();
        let freed = &self.shared().freed;
        let (mut passes, mut idle_passes) = (0, 0);
        while idle_passes < EPOCHS + passes / BATCHES {
            let before = freed.total();
            self.handle.pin().flush();
            passes += 1;
            idle_passes = if freed.total() == before { idle_passes + 1 } else { 0 };
        }
        self.shared().sort_slots_in();
    }

    /// Hands over what this participant has retired, so that other participants can free it.
    pub(crate) fn hand_over(&self) {
        if self.retired.get() > 0 {
            self.pin().hand_over();
        }
    }

    /// Gives back the memory that it keeps for its next nodes; false if it kept none.
    pub(crate) fn give_memory_back(&self) -> bool {
        self.magazines.empty_out(&self.shared().memory)
    }

    /// Until the value is dropped it hands nothing over as it retires: it works under a lock.
    pub(crate) fn keep_garbage(&self) -> KeepsGarbage<'_> {
        self.keeps.set(true);
        KeepsGarbage(self)
    }

    /// Hands over what it has retired, if that is much.
    pub(crate) fn hand_over_if_much(&self) {
        if self.has_much() {
            self.hand_over();
        }
    }

    fn has_much(&self) -> bool {
        self.retired.get() >= FLUSH_BYTES || self.limbo.borrow().len() >= FLUSH_NODES
    }

    #[inline]
    pub(crate) fn pin(&self) -> Guard<'_> {
        Guard { pinned: self.handle.pin(), local: self }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.hand_over();
        self.give_memory_back();
        self.shared().records.leave(&self.record);
    }
}

/// Made by [`Local::keep_garbage`].
#[derive(Debug)]
pub(crate) struct KeepsGarbage<'l>(&'l Local);

impl Drop for KeepsGarbage<'_> {
    fn drop(&mut self) {
        self.0.keeps.set(false);
    }
}

/// While it lives, no node is freed that was reachable when it was made.
#[derive(Debug)]
pub(crate) struct Guard<'l> {
    pinned: ce::Guard,
    local: &'l Local,
}

impl Guard<'_> {
    /// Where its participant counts what its users do.
    #[inline]
    pub(crate) fn record(&self) -> &Record {
        self.local.record()
    }

    pub(super) fn freed(&self) -> &FreedBytes {
        &self.local.shared().freed
    }

    /// Memory for a node of this layout, which is not empty.
    #[inline]
    pub(crate) fn allocate(&self, layout: Layout) -> NonNull<u8> {
        self.local.magazines.allocate(layout, &self.local.shared().memory)
    }

    /// Prefetches the memory that the next node of this layout gets.
    #[inline]
    pub(crate) fn prefetch(&self, layout: Layout) {
        self.local.magazines.prefetch(layout);
    }

    /// Hands over what its participant has retired, so that other participants can free it: in
    /// parts, because freeing one of them takes some microseconds.
    pub(crate) fn hand_over(&self) {
        let bytes = self.local.retired.take();
        let mut nodes = self.local.limbo.take();
        if nodes.is_empty() {
            return;
        }
        if nodes.len() <= MOST_NODES {
            if nodes.len() < FLUSH_NODES {
                // It may wait for a reader for long, and many like it.
                nodes.shrink_to_fit();
            }
            self.defer(nodes, bytes);
            return;
        }
        let mut rest = nodes.into_iter();
        while rest.len() > 0 {
            let part: Vec<_> = rest.by_ref().take(FLUSH_NODES).collect();
            let bytes = part.iter().map(|retired| retired.bytes).sum();
            self.defer(part, bytes);
        }
    }

    fn defer(&self, nodes: Vec<Retired>, bytes: usize) {
        let batch = Box::new(Batch { nodes, bytes, shared: self.local.shared });
        // Relaxed: a gauge.
        self.local.shared().garbage.fetch_add(bytes, Relaxed);
        // SAFETY: the nodes were unlinked before: all threads that can see them are pinned now.
        let free = move || unsafe { batch.free() };
        // SAFETY: the closure frees memory and touches nothing of this stack; it may run on any
        // thread.
        unsafe { self.pinned.defer_unchecked(free) };
        self.pinned.flush();
    }

    /// Bytes that its participant has retired and not handed over yet.
    pub(crate) fn retired_bytes(&self) -> usize {
        self.local.retired.get()
    }

    /// Frees `node` once every thread that is pinned now has unpinned. The caller has unlinked it,
    /// and retires it once (I1).
    #[inline]
    pub(crate) fn retire<T: Node>(&self, node: Ref<'_, T>) {
        self.retire_many().add(node);
    }

    /// To [`retire`](Self::retire) many. Nothing else is retired by this participant meanwhile.
    #[inline]
    pub(crate) fn retire_many(&self) -> Retiring<'_> {
        Retiring { limbo: Some(self.local.limbo.borrow_mut()), bytes: self.local.retired.get(), guard: self }
    }
}

/// Made by [`Guard::retire_many`].
#[derive(Debug)]
pub(crate) struct Retiring<'a> {
    /// Until it is dropped.
    limbo: Option<RefMut<'a, Vec<Retired>>>,
    /// Of all that is in it.
    bytes: usize,
    guard: &'a Guard<'a>,
}

impl Retiring<'_> {
    /// As [`Guard::retire`].
    #[inline]
    pub(crate) fn add<T: Node>(&mut self, node: Ref<'_, T>) {
        let Some(limbo) = &mut self.limbo else { return };
        if limbo.capacity() == 0 {
            limbo.reserve_exact(MOST_NODES);
        }
        let bytes = node.bytes();
        limbo.push(Retired { node: node.as_non_null().cast(), bytes, free: free_retired::<T> });
        self.bytes += bytes;
    }
}

impl Drop for Retiring<'_> {
    #[inline]
    fn drop(&mut self) {
        self.limbo = None;
        let local = self.guard.local;
        local.retired.set(self.bytes);
        if local.has_much() && !local.keeps.get() {
            self.guard.hand_over();
        }
    }
}
