//! Idle participants: one session leaves its participant, a later one takes it, and those that have
//! none borrow one for a call.
//!
//! A few slots, each with a state; a thread claims a slot by one compare-and-swap and skips those
//! that another thread has claimed. So no thread waits: a thread that is stopped halfway costs the
//! others one slot.
//!
//! # Invariants
//!
//! - **N1** Only the thread that took a slot from `EMPTY` or `FULL` to `BUSY` touches its
//!   participant, until it sets the state that follows.

use std::cell::UnsafeCell;
use std::ops::Deref;

use crate::sync::apart::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of slots; a participant that finds none free is dropped.
const SLOTS: usize = 64;

const EMPTY: usize = 0;
const BUSY: usize = 1;
const FULL: usize = 2;

/// No two share a cache line: what is lent is written by the thread that has it.
#[derive(Debug)]
#[repr(align(64))]
struct IdleSlot<T> {
    /// Explored by its own model alone: the protocols that use participants have edges of their
    /// own.
    state: AtomicUsize,
    local: UnsafeCell<Option<T>>,
}

/// Idle participants of one domain, which must outlive them; a model stores values of its own
/// instead.
#[derive(Debug)]
pub(crate) struct Idle<T, const N: usize = SLOTS>([IdleSlot<T>; N]);

// SAFETY: N1: one thread at a time touches a participant, and the state hands it over; a
// participant may be sent.
unsafe impl<T: Send, const N: usize> Sync for Idle<T, N> {}

impl<T, const N: usize> Idle<T, N> {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| IdleSlot { state: AtomicUsize::new(EMPTY), local: UnsafeCell::new(None) }))
    }

    /// Takes one out. Lock-free.
    pub(crate) fn take(&self) -> Option<T> {
        let slot = self.0.iter().find(|slot| slot.claim(FULL))?;
        let mut taken = None;
        slot.finish(EMPTY, &mut taken);
        taken
    }

    /// Leaves one for a later session; gives it back if every slot is taken. Lock-free.
    pub(crate) fn put(&self, local: T) -> Option<T> {
        let mut local = Some(local);
        if let Some(slot) = self.0.iter().find(|slot| slot.claim(EMPTY)) {
            slot.finish(FULL, &mut local);
        }
        local
    }
}

impl<T, const N: usize> Idle<T, N> {
    /// Lends a participant: one that lies in a slot, `near` one if that is free, or a new one, for
    /// which an empty slot is taken, or none if all are. Lock-free.
    #[inline]
    pub(crate) fn lend(&self, near: usize, make: impl FnOnce() -> T) -> Lent<'_, T> {
        for slot in (0..N).map(|i| &self.0[(near + i) % N]) {
            if slot.claim(FULL) {
                return Lent(Kept::In(slot));
            }
            if slot.claim(EMPTY) {
                // Left `BUSY` for good if this panics: one slot less.
                slot.fill(make());
                return Lent(Kept::In(slot));
            }
        }
        Lent(Kept::Alone(make()))
    }
}

impl<T, const N: usize> Idle<T, N> {
    /// Calls `visit` with each participant that no thread uses, one after the other. Lock-free.
    pub(crate) fn for_each_idle(&self, visit: impl Fn(&T)) {
        for slot in self.0.iter().filter(|slot| slot.claim(FULL)) {
            let lent = Lent(Kept::In(slot));
            visit(&lent);
        }
    }
}

/// A participant for the length of a call.
#[derive(Debug)]
pub(crate) struct Lent<'a, T>(Kept<'a, T>);

#[derive(Debug)]
enum Kept<'a, T> {
    /// Claimed by this thread.
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
    /// The participant in a slot that the caller has claimed.
    fn lent(&self) -> &T {
        // SAFETY: N1: the caller has claimed the slot, and no other thread touches it before that
        // ends.
        let local = unsafe { &*self.local.get() };
        local.as_ref().expect("a slot that was lent is not empty")
    }

    /// Puts a participant into a slot that the caller has claimed.
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
        // Relaxed: a look before the read-modify-write that decides. Acquire: the participant as
        // its last user left it.
        self.state.load(Relaxed) == from && self.state.compare_exchange(from, BUSY, Acquire, Relaxed).is_ok()
    }

    /// Swaps the slot's content with `other`, and opens the slot again.
    fn finish(&self, to: usize, other: &mut Option<T>) {
        // SAFETY: N1: the caller has claimed the slot.
        let local = unsafe { &mut *self.local.get() };
        std::mem::swap(local, other);
        self.open(to);
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
