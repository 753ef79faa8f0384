//! The point word: who holds a point, and who may end it.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 63 | `DEAD` | the point is absent for every operation; the word is final but for `QUEUED` |
//! | 62 | `NEW` | nobody has proved yet that the point lies on its run |
//! | 61 | `QUEUED` | one entry for the point is in the evictor's queue, or about to be pushed |
//! | 60 | `OPEN` | leases may count on the stripes of the slot (hot.rs) |
//! | 54..60 | slot | whose stripes those are; zero for none. While one stands here it holds one lease, the *bias* |
//! | 26..54 | leases | leases held on the point |
//! | 0..26 | children | child runs that hang on the point |
//!
//! A *step* is what the evictor must hear of: leases going from none to some or back, the clearing of `NEW`, the last
//! child of a point without leases going. Whoever makes a step sets `QUEUED` in the same compare-and-swap and, if it
//! was clear, pushes the point. On a `NEW` word nothing is a step but the clearing of `NEW`.
//!
//! # Invariants
//!
//! - **W1** `DEAD` is set only while there is neither lease nor child, and is never cleared.
//! - **W2** `NEW` and `QUEUED` are never set together.
//! - **W3** A dead word is written by nobody but whoever takes its entry out of the queue.
//! - **W4** A slot is attached to a proven point only, by a holder, where none stands; the evictor alone closes and
//!   detaches.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E2 | `release`, `remove_child` | `kill` | a holder's use of the blocks comes before their reuse |
//! | E3 | whatever sets or leaves `QUEUED` set | `take_out` | the evictor sees what the step saw |
//! | E4 | `take_out` | whatever sets `QUEUED` next | the link is read before it is written again |
//! | E5 | `prove` | `lease` | who leases a proven point sees the proof (margin) |
//! | E12 | `attach` | `still_open` | who counts on a stripe comes after the slot's last point was done with it |
//! | E11 | `kill` of a detached space's root | `lease_at`, which found it dead | the lookup that starts again sees the space that came after |

use crate::sync::atomic::{
    AtomicU64,
    Ordering::{self, AcqRel, Acquire, Relaxed, Release},
};

mod slot;

const DEAD: u64 = 1 << 63;
const NEW: u64 = 1 << 62;
const QUEUED: u64 = 1 << 61;
const OPEN: u64 = 1 << 60;
const SLOT: u64 = 1 << 54;
const SLOTS: u64 = 63 * SLOT;
const LEASE: u64 = 1 << 26;
const LEASES: u64 = (if cfg!(radixkv_tiny) { 3 } else { (1 << 28) - 1 }) * LEASE;
const CHILDREN: u64 = LEASE - 1;

/// Leases that one point can hold at once.
pub(crate) const MAX_LEASES: u64 = LEASES / LEASE;

/// Slots that a word can name.
pub(crate) const MAX_SLOTS: usize = (SLOTS / SLOT) as usize;

/// The name of a slot, from one on.
pub(crate) type HotSlotId = std::num::NonZeroU8;

/// A point's word.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

/// The word at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

/// What became of an attempt to lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Leased {
    /// The lease is held on a proven point; `push` it if told so. `contended`: somebody else wrote the word meanwhile.
    Proven { push: bool, contended: bool },
    /// The point is hot: a lease may count on a stripe of this slot. None is held.
    Open(HotSlotId),
    /// The lease is held, and the holder must prove the point or take the lease back.
    Unproven,
    /// The point is absent.
    Dead,
    /// `MAX_LEASES` are held.
    Full,
}

/// What became of a lease on a point that could not be proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Abandoned {
    /// It was the last lease: the point is dead, and the caller unlinks and retires it.
    Dead,
    /// Others hold it and will find out themselves.
    Left,
}

impl Snapshot {
    pub(crate) fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    pub(crate) fn is_new(self) -> bool {
        self.0 & NEW != 0
    }

    pub(crate) fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    pub(crate) fn leases(self) -> u64 {
        (self.0 & LEASES) / LEASE
    }

    pub(crate) fn children(self) -> u64 {
        self.0 & CHILDREN
    }

    /// Neither lease nor child: what killing and ranking ask for.
    pub(crate) fn is_idle(self) -> bool {
        self.0 & (LEASES | CHILDREN) == 0
    }

    /// Leases may count on the stripes of its slot.
    pub(crate) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// The slot that is attached, open or not.
    pub(crate) fn slot(self) -> Option<HotSlotId> {
        HotSlotId::new((self.0 / SLOT) as u8 & (SLOTS / SLOT) as u8)
    }

    /// A root's, with nothing but its permanent child. One look at one word: an insert counts its run before it gives
    /// up its lease on the root, so nothing hangs there.
    pub(crate) fn is_bare_root(self) -> bool {
        self.leases() == 0 && self.children() == 1
    }

    /// The same with `QUEUED` set, if that makes a step; and whether the caller must push then.
    fn stepped(self, next: u64, step: bool) -> (u64, bool) {
        if step && next & NEW == 0 { (next | QUEUED, self.0 & QUEUED == 0) } else { (next, false) }
    }
}

impl Word {
    /// Idle and proven: what a trimmer publishes at its target.
    pub(crate) fn idle() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Leased once and still to be proved.
    pub(crate) fn unproven() -> Self {
        Self(AtomicU64::new(NEW | LEASE))
    }

    /// Leased once, on a run that nobody else can reach yet; its maker pushes it after publishing the run.
    pub(crate) fn end_of_new_run() -> Self {
        Self(AtomicU64::new(QUEUED | LEASE))
    }

    /// A root's: one permanent child.
    pub(crate) fn root() -> Self {
        Self(AtomicU64::new(1))
    }

    pub(crate) fn load(&self, order: Ordering) -> Snapshot {
        Snapshot(self.0.load(order))
    }

    /// Takes a lease unless the point is dead or open.
    #[inline]
    pub(crate) fn lease(&self) -> Leased {
        let mut word = self.0.load(Relaxed);
        let mut contended = false;
        loop {
            if word & DEAD != 0 {
                return Leased::Dead;
            }
            if let (true, Some(slot)) = (Snapshot(word).is_open(), Snapshot(word).slot()) {
                return Leased::Open(slot);
            }
            if word & LEASES == LEASES {
                return Leased::Full;
            }
            let (next, push) = Snapshot(word).stepped(word + LEASE, word & LEASES == 0);
            crate::sync::failpoint!("word::lease");
            // Acquire: E4, E5.
            match self.0.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if word & NEW != 0 => return Leased::Unproven,
                Ok(_) => return Leased::Proven { push, contended },
                Err(seen) => (word, contended) = (seen, true),
            }
        }
    }

    /// Takes a lease for a holder of another one. It counts here even on a hot point, where the bias or the other lease
    /// does: so it is never a step, and no stripe stays in use for it. False if no more can be counted.
    #[must_use]
    pub(crate) fn lease_more(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        while word & LEASES != LEASES {
            debug_assert!(word & LEASES != 0 && word & (DEAD | NEW) == 0, "nobody holds the point");
            // Relaxed: the other lease is held on a proven point.
            match self.0.compare_exchange_weak(word, word + LEASE, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Makes a step of nothing but what the caller, who holds a lease, has written: true if the caller must push.
    #[must_use]
    pub(crate) fn announce(&self) -> bool {
        // Release: E3. Acquire: E4.
        let before = self.0.fetch_or(QUEUED, AcqRel);
        debug_assert!(before & LEASES != 0 && before & (DEAD | NEW) == 0, "nobody holds the point");
        before & QUEUED == 0
    }

    /// Gives a lease back; true if the caller must push the point, and may touch it for nothing else.
    #[inline]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            debug_assert!(word & LEASES != 0, "lease released twice");
            let last = word & LEASES == LEASE;
            let (next, push) = Snapshot(word).stepped(word - LEASE, last);
            // Release: E2, E3. Acquire: E4, where it may set the flag.
            let order = if last { AcqRel } else { Release };
            match self.0.compare_exchange_weak(word, next, order, Relaxed) {
                Ok(_) => return push,
                Err(seen) => word = seen,
            }
        }
    }

    /// Marks the point as lying on its run; true if the caller cleared `NEW` and must push. A lease is held.
    #[must_use]
    pub(crate) fn prove(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        while word & NEW != 0 {
            let next = (word & !NEW) | QUEUED;
            // Release: E5, which is margin: who leases the point goes by nothing that the proof orders, because lengths
            // only fall and arrays reach as far as any held point. E3 comes with the push (E8), which is the caller's,
            // and E4 asks for nothing: a `NEW` point was never queued (W2).
            match self.0.compare_exchange_weak(word, next, Release, Relaxed) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Gives back a lease on a point that lies beyond its run's end.
    pub(crate) fn abandon(&self) -> Abandoned {
        let mut word = self.0.load(Relaxed);
        loop {
            debug_assert!(word & NEW != 0, "an abandoned point was proved");
            let last = word & (LEASES | CHILDREN) == LEASE;
            let next = if last { (word - LEASE) | DEAD } else { word - LEASE };
            // Relaxed: nothing was written under the lease. The point is freed after all who let it go, because all of
            // them are pinned.
            match self.0.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) if last => return Abandoned::Dead,
                Ok(_) => return Abandoned::Left,
                Err(seen) => word = seen,
            }
        }
    }

    /// Ends an idle point; the word before, or nothing if it is held or dead.
    pub(crate) fn kill(&self) -> Option<Snapshot> {
        let mut word = self.0.load(Relaxed);
        while Snapshot(word).is_idle() && word & DEAD == 0 {
            // Acquire: E2. Release: E11; no model fails without it: whoever detached the space took the root's last child
            // off since, and the release of that goes on.
            match self.0.compare_exchange_weak(word, word | DEAD, AcqRel, Relaxed) {
                Ok(_) => return Some(Snapshot(word)),
                Err(seen) => word = seen,
            }
        }
        None
    }

    /// Counts a child run; the caller holds a lease. False if no more can be counted.
    #[must_use]
    pub(crate) fn add_child(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        while word & CHILDREN != CHILDREN {
            // Relaxed: the run was published by the map's edge E1; the lease keeps the point.
            match self.0.compare_exchange_weak(word, word + 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Takes a child run off; true if the caller must push the point.
    #[must_use]
    pub(crate) fn remove_child(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            debug_assert!(word & CHILDREN != 0, "child removed twice");
            let last = word & (LEASES | CHILDREN) == 1;
            let (next, push) = Snapshot(word).stepped(word - 1, last);
            // Release: E2, E3. Acquire: E4; no model fails without it: who takes children off is who takes entries out.
            match self.0.compare_exchange_weak(word, next, AcqRel, Relaxed) {
                Ok(_) => return push,
                Err(seen) => word = seen,
            }
        }
    }

    /// Clears `QUEUED` for an entry that leaves the queue; the word that its account goes by.
    pub(crate) fn take_out(&self) -> Snapshot {
        // Acquire: E3. Release: E4.
        Snapshot(self.0.fetch_and(!QUEUED, AcqRel))
    }
}

/// For tests of `PrefixCache::validate`: the fields, and a step that no transition makes.
#[cfg(test)]
impl Word {
    pub(crate) const DEAD: u64 = DEAD;
    pub(crate) const NEW: u64 = NEW;
    pub(crate) const QUEUED: u64 = QUEUED;
    pub(crate) const OPEN: u64 = OPEN;
    pub(crate) const LEASE: u64 = LEASE;
    pub(crate) const CHILD: u64 = 1;

    pub(crate) fn flip(&self, bits: u64) {
        // Relaxed: a test's cache is at rest.
        self.0.store(self.0.load(Relaxed) ^ bits, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proven(push: bool) -> Leased {
        Leased::Proven { push, contended: false }
    }

    #[test]
    fn the_last_to_abandon_an_unproven_point_ends_it() {
        let word = Word::unproven();
        assert_eq!(word.lease(), Leased::Unproven);
        assert!(word.load(Relaxed).is_new());
        assert_eq!(word.abandon(), Abandoned::Left);
        assert_eq!((word.load(Relaxed).leases(), word.load(Relaxed).is_dead()), (1, false));
        assert_eq!(word.abandon(), Abandoned::Dead);
        assert_eq!((word.load(Relaxed).leases(), word.load(Relaxed).is_dead()), (0, true));
        assert_eq!(word.lease(), Leased::Dead);
    }

    #[test]
    fn a_point_is_pushed_once_until_it_is_taken_out() {
        let word = Word::unproven();
        assert!(word.prove() && !word.prove());
        assert!(!word.load(Relaxed).is_new() && word.load(Relaxed).is_queued());
        assert!(!word.release(), "queued already");
        assert!(word.take_out().is_queued() && !word.load(Relaxed).is_queued());
        assert_eq!(word.lease(), proven(true));
        assert_eq!(word.lease(), proven(false));
        assert!(!word.release() && !word.release());
        assert!(word.kill().is_some_and(Snapshot::is_queued));
        assert!(word.kill().is_none());
        assert!(word.take_out().is_dead());
    }

    #[test]
    fn what_holds_a_point_keeps_it_from_being_killed() {
        let word = Word::idle();
        assert_eq!(word.lease(), proven(true));
        assert!(word.add_child() && word.kill().is_none());
        assert!(!word.release() && word.kill().is_none());
        assert_eq!((word.load(Relaxed).children(), word.load(Relaxed).is_idle()), (1, false));
        word.take_out();
        assert!(word.remove_child(), "the last hold went");
        assert!(word.kill().is_some());
    }

    #[test]
    fn a_full_word_takes_no_further_lease() {
        let word = Word(AtomicU64::new(LEASES - LEASE));
        assert_eq!(word.lease(), proven(false));
        assert_eq!(word.lease(), Leased::Full);
        assert!(!word.release());
        assert_eq!((word.load(Relaxed).leases(), word.lease()), (MAX_LEASES - 1, proven(false)));
    }
}
