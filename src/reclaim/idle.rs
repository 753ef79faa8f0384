//! A lock-free pool of idle participants. A session that ends puts its participant here, and a
//! later session takes it. A caller that has none borrows one for the duration of a call.
//!
//! The pool is an array of slots, each with a state. A thread claims a slot by one compare-and-swap
//! and skips slots that other threads have claimed, so no thread waits. A thread that stops while
//! it has a slot costs the others only that slot.
//!
//! # Invariants
//!
//! - **N1** Only the thread that took a slot from `EMPTY` or `FULL` to `BUSY` touches its
//!   participant, until it sets the state that follows.

use std::cell::UnsafeCell;
use std::ops::Deref;

use crate::sync::apart::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of slots. If none is empty, `put` hands the participant back to its caller.
const SLOTS: usize = 64;

const EMPTY: usize = 0;
const BUSY: usize = 1;
const FULL: usize = 2;

/// One slot of the pool, in its own cache line, because a borrower writes to the participant in
/// place.
#[derive(Debug)]
#[repr(align(64))]
struct IdleSlot<T> {
    /// Only this pool's own model explores its orderings; protocols that use participants have
    /// their own edges.
    state: AtomicUsize,
    local: UnsafeCell<Option<T>>,
}

/// The idle participants of one domain, which must outlive them. Also keeps the free numbers of
/// `records` and `rows`, the ripe batches of `epoch`, and a model's values.
#[derive(Debug)]
pub(crate) struct Idle<T, const N: usize = SLOTS>([IdleSlot<T>; N]);

// SAFETY: N1: one thread at a time touches a participant, the state's orderings hand it over, and
// `T` is `Send`.
unsafe impl<T: Send, const N: usize> Sync for Idle<T, N> {}

impl<T, const N: usize> Idle<T, N> {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| IdleSlot { state: AtomicUsize::new(EMPTY), local: UnsafeCell::new(None) }))
    }

    /// Takes a participant out of the pool, if one is idle. Lock-free.
    pub(crate) fn take(&self) -> Option<T> {
        let slot = self.0.iter().find(|slot| slot.claim(FULL))?;
        let mut taken = None;
        slot.finish(EMPTY, &mut taken);
        taken
    }

    /// Puts a participant into the pool; returns it if no slot is empty. Lock-free.
    pub(crate) fn put(&self, local: T) -> Option<T> {
        let mut local = Some(local);
        if let Some(slot) = self.0.iter().find(|slot| slot.claim(EMPTY)) {
            slot.finish(FULL, &mut local);
        }
        local
    }

    /// Lends a participant for a call. The search starts at slot `near` and ends at the first idle
    /// participant or empty slot; an empty slot gets a new participant. If all slots are claimed,
    /// the new participant is in no slot and is dropped after the call. Lock-free.
    #[inline]
    pub(crate) fn lend(&self, near: usize, make: impl FnOnce() -> T) -> Lent<'_, T> {
        for slot in (0..N).map(|i| &self.0[(near + i) % N]) {
            if slot.claim(FULL) {
                return Lent(Kept::In(slot));
            }
            if slot.claim(EMPTY) {
                // If `make` panics, the slot stays `BUSY` forever: one slot is lost.
                slot.fill(make());
                return Lent(Kept::In(slot));
            }
        }
        Lent(Kept::Alone(make()))
    }

    /// Calls `visit` with each idle participant in turn. Lock-free.
    pub(crate) fn for_each_idle(&self, visit: impl Fn(&T)) {
        for slot in self.0.iter().filter(|slot| slot.claim(FULL)) {
            let lent = Lent(Kept::In(slot));
            visit(&lent);
        }
    }
}

/// A participant borrowed for the duration of a call; dropping it ends the loan.
#[derive(Debug)]
pub(crate) struct Lent<'a, T>(Kept<'a, T>);

#[derive(Debug)]
enum Kept<'a, T> {
    /// In a slot that this thread has claimed.
    In(&'a IdleSlot<T>),
    Alone(T),
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Kept::In(slot) => slot.lent(),
            Kept::Alone(local) => local,
        }
    }
}

impl<T> Drop for Lent<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Kept::In(slot) = self.0 {
            slot.open(FULL);
        }
    }
}

impl<T> IdleSlot<T> {
    /// The participant in this slot, which the caller has claimed.
    fn lent(&self) -> &T {
        // SAFETY: N1: the caller has claimed the slot, and no other thread touches it before the
        // claim ends.
        let local = unsafe { &*self.local.get() };
        local.as_ref().expect("a slot that was lent is not empty")
    }

    /// Puts a participant into this slot, which the caller has claimed.
    fn fill(&self, new: T) {
        // SAFETY: N1: the caller has claimed the slot.
        let local = unsafe { &mut *self.local.get() };
        *local = Some(new);
    }

    fn open(&self, to: usize) {
        // Release: pairs with the next claim.
        self.state.store(to, Release);
    }

    fn claim(&self, from: usize) -> bool {
        // Relaxed: a cheap check; the compare-and-swap decides. Acquire: this thread sees the
        // participant as its last user left it.
        self.state.load(Relaxed) == from && self.state.compare_exchange(from, BUSY, Acquire, Relaxed).is_ok()
    }

    /// Swaps the slot's content with `other` and ends the claim with state `to`.
    fn finish(&self, to: usize, other: &mut Option<T>) {
        // SAFETY: N1: the caller has claimed the slot.
        let local = unsafe { &mut *self.local.get() };
        std::mem::swap(local, other);
        self.open(to);
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
