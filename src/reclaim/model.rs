//! The reclaimer of model builds: it frees as early as any legal reclaimer may.
//!
//! Garbage is freed as soon as every participant that was pinned when it was retired has unpinned;
//! participants that pinned later do not delay it. This is never later than `crossbeam-epoch`
//! frees, so a protocol that is correct here is also correct with crossbeam. Freed memory is
//! poisoned and kept until the model ends, so that every late access is found.
//!
//! The checker sees one pin word per participant (odd means pinned), changed only by
//! read-modify-writes. All other state is in `Cell`s: the checker runs all threads of a model on
//! one OS thread, so this state is exact and adds neither schedule points nor happens-before edges.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

use super::node::{end, free_now};
use super::records::Records;
use super::{FreedBytes, Node, Record, Ref};
#[cfg(radixkv_loom)]
use crate::sync::TrackedCell;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release, SeqCst},
    fence,
};
use crate::sync::thread::panicking;

const ALIVE: u32 = 0xA11E_A11E;
const FREED: u32 = 0xDEAD_DEAD;

/// Maximum participants of one model: loom runs at most five threads, and the evictor registers its
/// own.
const PARTICIPANTS: usize = if cfg!(radixkv_loom) { 8 } else { 64 };

/// Tracks whether its node is alive; loom also checks that the free is ordered after every access.
#[derive(Debug)]
pub(crate) struct Canary {
    #[cfg(radixkv_loom)]
    word: TrackedCell<u32>,
    #[cfg(not(radixkv_loom))]
    word: Cell<u32>,
}

// SAFETY: a model's threads share one OS thread; loom tracks the accesses to its cell.
unsafe impl Sync for Canary {}

impl Canary {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(radixkv_loom)]
            word: TrackedCell::new(FREED),
            #[cfg(not(radixkv_loom))]
            word: Cell::new(FREED),
        }
    }

    fn write(&self, value: u32) -> u32 {
        #[cfg(radixkv_loom)]
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        return self.word.with_mut(|word| std::mem::replace(unsafe { &mut *word }, value));
        #[cfg(not(radixkv_loom))]
        self.word.replace(value)
    }

    /// Marks the node alive by an explicit tracked write: loom does not track `UnsafeCell::new`, so
    /// it would miss an unsynchronised publication.
    pub(super) fn arm(&self) {
        self.write(ALIVE);
        track::LIVE.with(|live| live.set(live.get() + 1));
    }

    fn poison(&self) {
        assert_eq!(self.write(FREED), ALIVE, "freed twice");
        track::LIVE.with(|live| live.set(live.get() - 1));
    }

    #[track_caller]
    pub(super) fn check(&self) {
        #[cfg(radixkv_loom)]
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        let word = self.word.with(|word| unsafe { *word });
        #[cfg(not(radixkv_loom))]
        let word = self.word.get();
        assert_eq!(word, ALIVE, "used after it was freed");
    }
}

/// Poisons the node and keeps its memory until [`track::end`].
///
/// # Safety
///
/// No other thread uses `node`, now or later.
pub(super) unsafe fn quarantine<T: Node>(node: NonNull<T>) {
    // SAFETY: the caller owns the node, which is not freed yet.
    unsafe { node.as_ref() }.canary().model().poison();
    let free = Box::new(move || {
        // SAFETY: the model has ended, so nothing uses the node.
        let (memory, layout) = unsafe { end(node) };
        // SAFETY: allocated by `allocate` with this layout.
        unsafe { dealloc(memory.as_ptr(), layout) };
    });
    track::QUARANTINE.with(|quarantine| quarantine.borrow_mut().push(free));
}

/// Begins and ends a model execution: checks that no node leaked, and frees quarantined memory.
pub mod track {
    use std::cell::{Cell, RefCell};

    thread_local! {
        pub(super) static LIVE: Cell<isize> = const { Cell::new(0) };
        pub(super) static QUARANTINE: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
    }

    /// Call this first in every execution of a model. It leaks the nodes of a failed execution
    /// before.
    pub fn begin() {
        LIVE.with(|live| live.set(0));
        QUARANTINE.with(|quarantine| std::mem::forget(std::mem::take(&mut *quarantine.borrow_mut())));
    }

    /// Call this last in every execution: it frees the quarantined nodes and checks that none
    /// leaked.
    ///
    /// # Panics
    ///
    /// If a node has not been freed.
    pub fn end() {
        let freed = QUARANTINE.with(|quarantine| std::mem::take(&mut *quarantine.borrow_mut()));
        freed.into_iter().for_each(|free| free());
        LIVE.with(|live| assert_eq!(live.get(), 0, "nodes leaked"));
    }
}

struct Garbage {
    free: Box<dyn FnOnce()>,
    /// The pin words at the moment of retirement.
    pinned: [usize; PARTICIPANTS],
}

struct DomainState {
    pins: [AtomicUsize; PARTICIPANTS],
    next: Cell<usize>,
    garbage: RefCell<Vec<Garbage>>,
    freed: FreedBytes,
    records: Records,
}

impl DomainState {
    /// Reads all pin words. A read-modify-write reads the newest value (a stale one could only
    /// delay the free) and orders the end of a critical section before the free.
    fn words(&self) -> [usize; PARTICIPANTS] {
        // Acquire: pairs with the end of a critical section.
        std::array::from_fn(|i| if i < self.next.get() { self.pins[i].fetch_add(0, Acquire) } else { 0 })
    }

    fn collect(&self) {
        // Taken before the pin words are read: nodes retired in between wait for the next call.
        let batch = std::mem::take(&mut *self.garbage.borrow_mut());
        if batch.is_empty() {
            return;
        }
        let now = self.words();
        let held = |g: &Garbage| (0..PARTICIPANTS).any(|i| g.pinned[i] & 1 == 1 && now[i] == g.pinned[i]);
        let (keep, ready): (Vec<_>, Vec<_>) = batch.into_iter().partition(held);
        self.garbage.borrow_mut().extend(keep);
        ready.into_iter().for_each(|garbage| (garbage.free)());
    }
}

impl Drop for DomainState {
    fn drop(&mut self) {
        // While a failed model unwinds, a free could panic again and turn its message into an
        // abort.
        if !panicking() {
            self.garbage.take().into_iter().for_each(|garbage| (garbage.free)());
        }
    }
}

/// The reclaimer of one cache.
pub(crate) struct Domain(Rc<DomainState>);

// SAFETY: all threads of a model share one thread of the system.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Domain")
    }
}

impl Domain {
    /// Models have no bays.
    pub(crate) fn with_bays(_: usize) -> Self {
        Self::new()
    }

    pub(crate) fn new() -> Self {
        Self(Rc::new(DomainState {
            pins: std::array::from_fn(|_| AtomicUsize::new(0)),
            next: Cell::new(0),
            garbage: RefCell::new(Vec::new()),
            freed: FreedBytes::new(),
            records: Records::new(),
        }))
    }

    pub(crate) fn register(&self) -> Local {
        let id = self.0.next.get();
        assert!(id < PARTICIPANTS, "too many participants in one model");
        self.0.next.set(id + 1);
        let record = self.0.records.hold();
        Local { state: Rc::clone(&self.0), id, depth: Cell::new(0), sequence: Cell::new(0), record }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.freed.left_of(&self.0.records)
    }

    pub(crate) fn records(&self) -> &Records {
        &self.0.records
    }

    pub(crate) fn garbage_bytes(&self) -> usize {
        0
    }

    pub(crate) fn cool_down(&self) {}

    pub(crate) fn slab_bytes(&self) -> usize {
        0
    }
}

/// One participant.
pub(crate) struct Local {
    state: Rc<DomainState>,
    id: usize,
    depth: Cell<usize>,
    sequence: Cell<usize>,
    record: Record,
}

// SAFETY: all threads of a model share one thread of the system.
unsafe impl Send for Local {}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Local({})", self.id)
    }
}

impl Local {
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn reclaim(&self) {
        self.state.collect();
    }

    pub(crate) fn hand_over(&self) {}

    pub(crate) fn give_memory_back(&self) -> bool {
        false
    }

    pub(crate) fn keep_garbage(&self) -> KeepsGarbage<'_> {
        KeepsGarbage(self)
    }

    pub(crate) fn hand_over_if_much(&self) {}

    pub(crate) fn pin(&self) -> Guard<'_> {
        self.depth.set(self.depth.get() + 1);
        if self.depth.get() == 1 {
            self.sequence.set(self.sequence.get() + 1);
            // Release: a thread that reads this word also sees the end of this participant's
            // previous critical section.
            self.state.pins[self.id].swap(self.sequence.get(), Release);
            // SeqCst: a collector sees this pin, or this thread sees the unlink.
            fence(SeqCst);
        }
        Guard { local: self }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.state.records.leave(&self.record);
    }
}

/// Has no effect here: a retired node is given to the domain at once.
#[derive(Debug)]
pub(crate) struct KeepsGarbage<'l>(#[expect(dead_code, reason = "as the real one")] &'l Local);

impl Drop for KeepsGarbage<'_> {
    fn drop(&mut self) {}
}

/// A pin: while it lives, no node is freed that was reachable when it was made.
#[derive(Debug)]
pub(crate) struct Guard<'l> {
    local: &'l Local,
}

impl Guard<'_> {
    /// The record in which its participant's users count.
    #[inline]
    pub(crate) fn record(&self) -> &Record {
        self.local.record()
    }

    pub(super) fn freed(&self) -> &FreedBytes {
        &self.local.state.freed
    }

    pub(crate) fn allocate(&self, layout: Layout) -> NonNull<u8> {
        // SAFETY: the layout is a node's, which is not empty.
        let memory = unsafe { alloc(layout) };
        NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
    }

    pub(crate) fn prefetch(&self, _: Layout) {}

    pub(crate) fn hand_over(&self) {}

    pub(crate) fn retired_bytes(&self) -> usize {
        0
    }

    pub(crate) fn retire_many(&self) -> Retiring<'_> {
        Retiring(self)
    }

    pub(crate) fn retire<T: Node>(&self, node: Ref<'_, T>) {
        let state = &self.local.state;
        // SeqCst: pairs with the fence in `pin`, as crossbeam's fence in `push_bag` does.
        fence(SeqCst);
        let pinned = state.words();
        let pointer = NonNull::new(node.as_ptr()).expect("a reference is not null");
        let freed = NonNull::from(&state.freed);
        let free = Box::new(move || {
            // SAFETY: the counter and the garbage are in the same state, so the counter is alive.
            let freed = unsafe { freed.as_ref() };
            // SAFETY: unlinked, and every participant that was pinned then has unpinned.
            unsafe { free_now(pointer, freed) };
        });
        state.garbage.borrow_mut().push(Garbage { free, pinned });
    }
}

/// Retires several nodes, as the real one does.
#[derive(Debug)]
pub(crate) struct Retiring<'a>(&'a Guard<'a>);

impl Retiring<'_> {
    pub(crate) fn add<T: Node>(&mut self, node: Ref<'_, T>) {
        self.0.retire(node);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let local = self.local;
        local.depth.set(local.depth.get() - 1);
        if local.depth.get() == 0 && !panicking() {
            local.sequence.set(local.sequence.get() + 1);
            // Release: pairs with `words`, before the free.
            local.state.pins[local.id].swap(local.sequence.get(), Release);
            local.state.collect();
        }
    }
}
