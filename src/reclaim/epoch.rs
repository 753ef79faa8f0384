//! The reclaimer of real builds: `crossbeam-epoch` with one collector per cache.
//!
//! The default collector is shared by every crate in the process, so one stalled reader anywhere
//! would hold back this cache's memory. With its own collector, a cache also frees all its garbage
//! when it is dropped.
//!
//! A participant ([`Local`]) collects retired nodes in its `limbo` and *hands them over* to the
//! collector in batches ([`Batch`]); any participant may then free a batch.
//!
//! If the evictor has several shards, a batch returns to the participant that retired its nodes, so
//! that the core that used the memory last reuses it. A batch is *ripe* when no thread can see its
//! nodes any more. The thread that finds it ripe puts it into that participant's *bay*, a queue of
//! at most two batches; if the bay is full, the thread frees the batch. When a participant's
//! magazine of some size is empty, it frees a batch from its bay and keeps the slots.
//! [`Local::reclaim`] empties all bays. Batches in bays count as garbage.

use std::alloc::Layout;
use std::cell::{Cell, RefCell, RefMut};
use std::ptr::NonNull;

use crossbeam_epoch as ce;
use crossbeam_utils::CachePadded;

use super::idle::Idle;
use super::memory::{Freed, Magazines, Memory};
use super::node::end;
use super::records::Records;
use super::{FreedBytes, Node, Record, Ref};
use crate::sync::gauge::{AtomicUsize, Relaxed};

/// A participant with this many bytes or nodes of garbage hands it over and tries to reclaim.
const FLUSH_BYTES: usize = 64 << 10;
const FLUSH_NODES: usize = 256;
/// Maximum nodes in one batch. More than `FLUSH_NODES`, because the evictor's garbage grows until
/// its turn ends.
const MOST_NODES: usize = 2 * FLUSH_NODES;

/// Freed slots are sorted into their slabs if the slabs exceed twice the bytes in use by this many.
const SPARE_BYTES: usize = 2 << 20;

/// After this many passes without effect, nothing more can be freed: one pass hands garbage over,
/// two advance the epoch, one frees.
const EPOCHS: usize = 4;
/// Batches freed per pass. Each group of so many passes allows one more without effect: the entries
/// of crossbeam's queue are also garbage, and freeing them frees no node.
const BATCHES: usize = 8;

/// The reclaimer of one cache.
#[derive(Debug)]
pub(crate) struct Domain {
    // Dropped before `shared`: freeing its garbage uses the counters and the memory there.
    collector: ce::Collector,
    shared: Box<Shared>,
    /// How many participants were registered so far.
    #[cfg(test)]
    registered: AtomicUsize,
}

/// Ripe batches of one participant; participants share a bay if there are more of them than bays.
type Bay = Idle<Box<Batch>, BAY>;
const BAY: usize = 2;

/// State that participants and garbage reach through a pointer.
#[derive(Debug)]
struct Shared {
    /// Ripe batches, returned to the participants that retired their nodes.
    bays: Box<[CachePadded<Bay>]>,
    /// Number of participants that were given a bay.
    berths: AtomicUsize,
    freed: FreedBytes,
    /// Bytes handed over and not yet freed: a gauge.
    garbage: AtomicUsize,
    records: Records,
    memory: Memory,
}

impl Shared {
    /// Bytes of nodes that are allocated and not yet freed: a gauge.
    fn bytes(&self) -> usize {
        self.freed.left_of(&self.records)
    }

    /// Frees the batches in all bays, and no batch that another thread adds later.
    fn empty_bays(&self) {
        for bay in &self.bays {
            for batch in std::iter::from_fn(|| bay.take()).take(BAY) {
                // SAFETY: I1: a batch in a bay is ripe.
                unsafe { batch.free(None) };
            }
        }
    }

    /// Sorts the depots' free slots into their slabs if much of the slabs' memory is unused, so
    /// that empty slabs can be returned to the system.
    fn sort_slots_in(&self) {
        if self.memory.slab_bytes() > 2 * self.bytes() + SPARE_BYTES {
            self.memory.sort_in();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.empty_bays();
    }
}

impl Domain {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::with_bays(0)
    }

    /// Makes a domain that returns memory to the participants that retired it, through `bays` bays.
    /// With 0, any participant frees any batch.
    pub(crate) fn with_bays(bays: usize) -> Self {
        let shared = Shared {
            bays: (0..bays).map(|_| CachePadded::new(Idle::new())).collect(),
            berths: AtomicUsize::new(0),
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

    /// Registers a participant; the domain must outlive it.
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
            // Relaxed: participants that share a bay are slower, but correct.
            bay: self.shared.berths.fetch_add(1, Relaxed),
            record: self.shared.records.hold(),
        }
    }

    /// Bytes of nodes that are allocated and not yet freed, garbage included: a gauge.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.bytes()
    }

    /// The counts of all participants, including those that were dropped.
    pub(crate) fn records(&self) -> &Records {
        &self.shared.records
    }

    /// How many participants were registered so far.
    #[cfg(test)]
    pub(crate) fn registered(&self) -> usize {
        self.registered.load(Relaxed)
    }

    /// Bytes of unlinked nodes that were handed over and are not yet freed, each node with its size
    /// when it was retired.
    pub(crate) fn garbage_bytes(&self) -> usize {
        // Relaxed: a gauge.
        self.shared.garbage.load(Relaxed)
    }

    /// Returns memory that an idle cache does not need to the system.
    pub(crate) fn cool_down(&self) {
        self.shared.memory.cool_down();
    }

    /// Bytes of the nodes' slabs.
    pub(crate) fn slab_bytes(&self) -> usize {
        self.shared.memory.slab_bytes()
    }
}

/// One participant, through which one thread at a time pins.
#[derive(Debug)]
pub(crate) struct Local {
    handle: ce::LocalHandle,
    shared: NonNull<Shared>,
    /// Bytes in `limbo`.
    retired: Cell<usize>,
    /// Nodes that were retired and not yet handed over.
    limbo: RefCell<Vec<Retired>>,
    /// If set, only explicit calls hand over, not `retire`.
    keeps: Cell<bool>,
    magazines: Magazines,
    /// Index of its bay.
    bay: usize,
    record: Record,
}

/// A retired node: its address, and the function that frees a node of its type.
#[derive(Debug)]
struct Retired {
    node: NonNull<()>,
    bytes: usize,
    free: unsafe fn(NonNull<()>, &mut Freed<'_>) -> usize,
}

// SAFETY: a retired node belongs to the thread that frees it.
unsafe impl Send for Retired {}
// SAFETY: as its nodes; `shared` outlives it.
unsafe impl Send for Batch {}

/// Nodes that were handed over together and are freed together.
#[derive(Debug)]
struct Batch {
    /// The bay of the participant that retired them.
    bay: usize,
    nodes: Vec<Retired>,
    bytes: usize,
    shared: NonNull<Shared>,
}

/// Drops a node in place and adds its memory to `freed`. Returns the node's bytes at that moment.
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
    // SAFETY: nodes are in the memory of their cache, and this one has been dropped.
    unsafe { freed.add(memory, layout) };
    bytes
}

impl Batch {
    /// Puts the batch into the bay of the participant that retired its nodes; frees it if the bay
    /// is full.
    ///
    /// # Safety
    ///
    /// Every guard that could have seen one of the nodes is gone (I1).
    unsafe fn ripen(self: Box<Self>) {
        // SAFETY: the domain drops its garbage before `shared`.
        let shared = unsafe { self.shared.as_ref() };
        let too_many = match shared.bays.len() {
            0 => Some(self),
            bays => shared.bays[self.bay % bays].put(self),
        };
        // SAFETY: as the caller promised.
        too_many.into_iter().for_each(|batch| unsafe { batch.free(None) });
    }

    /// Frees the nodes; `keeps` gets as much of their memory as it has room for.
    ///
    /// # Safety
    ///
    /// Every guard that could have seen one of the nodes is gone (I1).
    unsafe fn free(&self, keeps: Option<&Magazines>) {
        // SAFETY: the domain drops its garbage before `shared`.
        let shared = unsafe { self.shared.as_ref() };
        let mut freed = Freed::new(&shared.memory, keeps);
        let mut bytes = 0;
        for Retired { node, free, .. } in &self.nodes {
            // SAFETY: as the caller promised; each node is in one batch, once (I1).
            bytes += unsafe { free(*node, &mut freed) };
        }
        shared.freed.add(bytes);
        // Relaxed: a gauge.
        shared.garbage.fetch_sub(self.bytes, Relaxed);
    }
}

// SAFETY: a participant is used by one thread at a time (it is not `Sync`) and has no thread-local
// state: the handle is a pointer into the collector, which it keeps alive. A participant cannot be
// moved while a guard borrows it.
unsafe impl Send for Local {}

impl Local {
    fn shared(&self) -> &Shared {
        // SAFETY: the domain outlives its participants.
        unsafe { self.shared.as_ref() }
    }

    /// The record that its users count in.
    #[inline]
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Frees the present garbage, as far as no thread can see it any more, and sorts free slots into
    /// sparse slabs. Call it without a guard, because each pass may advance the epoch once; each
    /// frees some batches. Ends whatever garbage other threads add: batches are freed in the order
    /// in which they were handed over.
    pub(crate) fn reclaim(&self) {
        self.hand_over();
        let freed = &self.shared().freed;
        // Relaxed: a gauge. Read before `total`, so that what other threads free between the two
        // does not bring the goal nearer.
        let garbage = self.shared().garbage.load(Relaxed) as u64;
        let goal = freed.total() + garbage;
        let (mut passes, mut idle_passes) = (0, 0);
        while idle_passes < EPOCHS + passes / BATCHES {
            let before = freed.total();
            self.handle.pin().flush();
            self.shared().empty_bays();
            passes += 1;
            let is_idle = freed.total() == before || before >= goal;
            idle_passes = if is_idle { idle_passes + 1 } else { 0 };
        }
        self.shared().sort_slots_in();
    }

    /// Frees a batch from this participant's bay and keeps its memory.
    fn free_waiting(&self) {
        let bays = &self.shared().bays;
        if let Some(batch) = bays.get(self.bay % bays.len().max(1)).and_then(|bay| bay.take()) {
            // SAFETY: I1: a batch in a bay is ripe.
            unsafe { batch.free(Some(&self.magazines)) };
        }
    }

    /// As [`Guard::hand_over`]; does not pin if there is no garbage.
    pub(crate) fn hand_over(&self) {
        if self.retired.get() > 0 {
            self.pin().hand_over();
        }
    }

    /// Gives the participant's free slots back to the depots; false if there were none.
    pub(crate) fn give_memory_back(&self) -> bool {
        self.magazines.empty_out(&self.shared().memory)
    }

    /// Until the returned value is dropped, `retire` hands nothing over. For a caller that holds a
    /// lock.
    pub(crate) fn keep_garbage(&self) -> KeepsGarbage<'_> {
        self.keeps.set(true);
        KeepsGarbage(self)
    }

    /// Hands over this participant's garbage if it has reached `FLUSH_BYTES` or `FLUSH_NODES`.
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

/// A pin: while it lives, no node that was reachable when it was made is freed.
#[derive(Debug)]
pub(crate) struct Guard<'l> {
    pinned: ce::Guard,
    local: &'l Local,
}

impl Guard<'_> {
    /// The record that its participant's users count in.
    #[inline]
    pub(crate) fn record(&self) -> &Record {
        self.local.record()
    }

    pub(super) fn freed(&self) -> &FreedBytes {
        &self.local.shared().freed
    }

    /// Allocates memory for a node of this layout, which is not empty.
    #[inline]
    pub(crate) fn allocate(&self, layout: Layout) -> NonNull<u8> {
        self.local.magazines.allocate(layout, &self.local.shared().memory, || self.local.free_waiting())
    }

    /// Prefetches the memory that the next node of this layout gets.
    #[inline]
    pub(crate) fn prefetch(&self, layout: Layout) {
        self.local.magazines.prefetch(layout);
    }

    /// Hands over its participant's garbage, so that other participants can free it. Large garbage
    /// is split into batches, because freeing one batch takes some microseconds.
    pub(crate) fn hand_over(&self) {
        let bytes = self.local.retired.take();
        let mut nodes = self.local.limbo.take();
        if nodes.is_empty() {
            return;
        }
        if nodes.len() <= MOST_NODES {
            if nodes.len() < FLUSH_NODES {
                // Many small batches may wait for a slow reader, and their spare capacity would add
                // up.
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
        let batch = Box::new(Batch { bay: self.local.bay, nodes, bytes, shared: self.local.shared });
        // Relaxed: a gauge.
        self.local.shared().garbage.fetch_add(bytes, Relaxed);
        // SAFETY: the nodes were unlinked before, so every thread that can see them is pinned now.
        let free = move || unsafe { batch.ripen() };
        // SAFETY: the closure frees memory and borrows nothing from this stack; it may run on any
        // thread.
        unsafe { self.pinned.defer_unchecked(free) };
        self.pinned.flush();
    }

    /// Bytes that its participant has retired and not yet handed over.
    pub(crate) fn retired_bytes(&self) -> usize {
        self.local.retired.get()
    }

    /// Frees `node` once every thread that is pinned now has unpinned. The caller has unlinked it,
    /// and retires it once (I1).
    #[inline]
    pub(crate) fn retire<T: Node>(&self, node: Ref<'_, T>) {
        self.retire_many().add(node);
    }

    /// Starts to [`retire`](Self::retire) many nodes. Until the value is dropped, this participant
    /// must retire nodes only through it.
    #[inline]
    pub(crate) fn retire_many(&self) -> Retiring<'_> {
        Retiring { limbo: Some(self.local.limbo.borrow_mut()), bytes: self.local.retired.get(), guard: self }
    }
}

/// Made by [`Guard::retire_many`].
#[derive(Debug)]
pub(crate) struct Retiring<'a> {
    /// `Some` until `drop`, which ends the borrow before it hands over.
    limbo: Option<RefMut<'a, Vec<Retired>>>,
    /// Bytes of all nodes in `limbo`.
    bytes: usize,
    guard: &'a Guard<'a>,
}

impl Retiring<'_> {
    /// Retires one node, as [`Guard::retire`] does.
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
