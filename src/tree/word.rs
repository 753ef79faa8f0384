//! The point word: an atomic that counts the leases and child runs of a point, and decides which
//! thread may kill it.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 63 | `DEAD` | the point is absent for every operation; the word is final except for `QUEUED` |
//! | 62 | `NEW` | the point is not yet proved to be on its run |
//! | 61 | `QUEUED` | one entry for the point is in the evictor's queue, or about to be pushed |
//! | 60 | `OPEN` | leases may count on the stripes of the slot (hot.rs) |
//! | 54..60 | slot | the slot whose stripes those are; zero for none. While a slot is attached it holds one lease, the *bias* |
//! | 26..54 | leases | leases held on the point |
//! | 25 | `SILENT` | leases and releases are not queued; the evictor looks at the word when the point's turn comes |
//! | 0..25 | children | child runs attached to the point |
//!
//! A *queued change* is one that the evictor must learn of: the first lease, the end of the last
//! lease, the clearing of `NEW`, the end of the last child of a point without leases. The thread
//! that makes the change sets `QUEUED` in the same compare-and-swap and pushes the point if the
//! flag was clear. While a word is `NEW`, only the clearing of `NEW` is queued. On a root, nothing
//! is queued until its space ends (sweep.rs).
//!
//! Here *the evictor* is the lock holder of the shard that the point's run belongs to. A turn of
//! another shard may only remove a child (`remove_child_for_other_shard`). It may not read the
//! point, so the end of the last child is then a queued change even if the point is silent. `defer`
//! sets `QUEUED` on a point that a turn of one shard leaves to the next turn of all shards.
//!
//! A lease on a `SILENT` point changes only the count. The evictor sets the bit when it files the
//! point, or takes it out of the queue. If it finds a lease when the point's turn comes, and must
//! know when that lease ends, it *listens*: it clears the bit, so that the last release is a queued
//! change.
//!
//! `snapshot` has the bits as a plain value. This file and `slot` have the transitions, each one
//! atomic read-modify-write.
//!
//! # Invariants
//!
//! - **W1** `DEAD` is set only while the point has no lease and no child, and is never cleared.
//! - **W2** `NEW` and `QUEUED` are never set together.
//! - **W3** A dead word is written only by the thread that takes its entry out of the queue.
//! - **W4** A slot is attached only to a proven point that has none, by a thread with a lease. Only
//!   the evictor closes and detaches it.
//! - **W5** Only the evictor writes `SILENT`, and only on live, proven points. A point with a lease
//!   in the accounts is not silent.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E2 | `release`, `remove_child`, `remove_child_for_other_shard` | `kill` | a leaseholder's use of the blocks comes before their reuse |
//! | E3 | `release`, `announce`, `defer`, `remove_child`, `remove_child_for_other_shard` | `take_out` | the evictor sees what was written before the change |
//! | E27 | `release` | `look`, `listen` | as E3, for a lease on a silent point |
//! | E28 | `listen` | the release that ends the last lease | the thread sees that another one waits (cache::line::wait_list) |
//! | E4 | `take_out` | the transition that sets `QUEUED` next | the link is read before it is written again |
//! | E5 | `prove` | `lease` | a lease on a proven point sees the proof (margin) |
//! | E12 | `attach` | `still_open` | a count on a stripe comes after the end of the slot's previous point |
//! | E11 | `kill` of a detached space's root | `lease_at`, which found it dead | the lookup that starts again sees the new space |

use crate::sync::atomic::{
    AtomicU64,
    Ordering::{self, AcqRel, Acquire, Relaxed, Release},
};

mod slot;
mod snapshot;

#[cfg(test)]
use snapshot::MAX_LEASES;
pub(crate) use snapshot::{HotSlotId, MAX_SLOTS, Snapshot};

use snapshot::{CHILDREN, LEASE, NEW, QUEUED, SILENT};

/// The word of a point.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

/// The effect of a transition on the word that it sees, and its result.
enum Update<T> {
    /// Leaves the word as it is.
    Keep(T),
    /// Swaps the word for this one with this ordering. If another thread was first, the transition
    /// retries.
    Swap(Snapshot, Ordering, T),
}

use Update::{Keep, Swap};

/// The outcome of an attempt to lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Leased {
    /// The lease is held on a proven point. The caller pushes the point if `push` is true.
    /// `at_once`: no other thread changed the word during the attempt.
    Proven { push: bool, at_once: bool },
    /// The point is hot and no lease is held yet: the caller may count one on a stripe of this
    /// slot.
    Open(HotSlotId),
    /// The lease is held; the caller must prove the point or take the lease back.
    Unproven,
    /// The point is dead and counts as absent.
    Dead,
    /// `MAX_LEASES` leases are held.
    Full,
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Released {
    /// The caller must push the point, and may touch it for no other purpose.
    pub(crate) push: bool,
    /// No lease is left except perhaps a bias, and the point is not silent: a thread that waits for
    /// blocks may be waiting for this release.
    pub(crate) is_awaited: bool,
}

/// The end of a child run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct ChildRemoved {
    /// The caller must push the point.
    pub(crate) push: bool,
    /// It was the last child of a silent point, so the evictor must look at the point.
    pub(crate) is_silent_end: bool,
}

/// The state of a point that could not be proved, after the caller has given up its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Abandoned {
    /// It was the last lease: the point is dead, and the caller unlinks and retires it.
    Dead,
    /// Other threads still lease it, and will fail to prove it as well.
    Left,
}

impl Word {
    /// Idle and proven: the word of a point that a trimmer publishes at its target.
    pub(crate) fn idle() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Leased once and not yet proved.
    pub(crate) fn unproven() -> Self {
        Self(AtomicU64::new(NEW | LEASE))
    }

    /// Leased once, on a run that is not yet published; the thread that publishes the run then
    /// pushes the point.
    pub(crate) fn end_of_new_run() -> Self {
        Self(AtomicU64::new(QUEUED | LEASE))
    }

    /// The word of a root: one permanent child. `QUEUED` is set although the root is in no queue,
    /// so no lease on it is a queued change as long as lookups start there.
    pub(crate) fn root() -> Self {
        Self(AtomicU64::new(QUEUED | snapshot::CHILD))
    }

    pub(crate) fn load(&self, order: Ordering) -> Snapshot {
        Snapshot(self.0.load(order))
    }

    /// The loop of every transition: calls `next` with the present word until it keeps the word or
    /// the swap succeeds.
    ///
    /// The first load and a failed swap are relaxed: the value is only a guess, which the next swap
    /// checks.
    #[inline(always)]
    fn update<T>(&self, mut next: impl FnMut(Snapshot) -> Update<T>) -> T {
        let mut seen = self.0.load(Relaxed);
        loop {
            let (word, order, outcome) = match next(Snapshot(seen)) {
                Keep(outcome) => return outcome,
                Swap(word, order, outcome) => (word, order, outcome),
            };
            match self.0.compare_exchange_weak(seen, word.0, order, Relaxed) {
                Ok(_) => return outcome,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Takes a lease unless the point is dead, full, or open.
    #[inline]
    pub(crate) fn lease(&self) -> Leased {
        // The reason for a refusal is found after the loop, so that one branch of the loop serves
        // dead and open.
        let mut first = true;
        let leased = self.update(|word| {
            if word.is_dead() || word.is_open() || word.is_full() {
                return Keep(Err(word));
            }
            let at_once = std::mem::take(&mut first);
            let (next, push) = word.changed(word.with_lease(), word.leases() == 0);
            crate::sync::failpoint!("word::lease");
            // Acquire: E4, E5.
            Swap(next, Acquire, Ok((word, push, at_once)))
        });
        match leased {
            Ok((before, ..)) if before.is_new() => Leased::Unproven,
            Ok((_, push, at_once)) => Leased::Proven { push, at_once },
            Err(word) if word.is_dead() => Leased::Dead,
            Err(word) => match word.open_slot() {
                Some(slot) => Leased::Open(slot),
                None => Leased::Full,
            },
        }
    }

    /// Takes one more lease for a caller that holds one; false if no more can be counted. It counts
    /// in the word even if the point is hot, so it keeps no stripe in use. It is never the first
    /// lease (a queued change): the bias or the caller's other lease counts there as well.
    #[must_use]
    pub(crate) fn lease_more(&self) -> bool {
        self.update(|word| {
            if word.is_full() {
                return Keep(false);
            }
            debug_assert!(word.leases() > 0 && word.is_proven(), "no lease is held");
            // Relaxed: the caller's other lease is held on a proven point.
            Swap(word.with_lease(), Relaxed, true)
        })
    }

    /// Queues a change that the caller has written elsewhere under a lease; true if the caller must
    /// push the point.
    #[must_use]
    pub(crate) fn announce(&self) -> bool {
        // Release: E3. Acquire: E4.
        let before = self.0.fetch_or(QUEUED, AcqRel);
        let before = Snapshot(before);
        debug_assert!(before.leases() > 0 && before.is_proven(), "no lease is held");
        !before.is_queued()
    }

    /// Queues the point for another turn of the evictor; true if it was not queued. Only the evictor
    /// calls it, on a live point.
    #[must_use]
    pub(crate) fn defer(&self) -> bool {
        // Release: E3. Acquire: E4.
        !Snapshot(self.0.fetch_or(QUEUED, AcqRel)).is_queued()
    }

    /// Gives a lease back.
    #[inline]
    pub(crate) fn release(&self) -> Released {
        self.update(|word| {
            debug_assert!(word.leases() > 0, "lease released twice");
            let (last, only_bias_left) = (word.leases() == 1, word.has_one_lease());
            let (next, push) = word.changed(word.without_lease(), last);
            // Release: E2, E3, E27. Acquire: E4 where it may set the flag, and E28.
            let order = if only_bias_left { AcqRel } else { Release };
            Swap(next, order, Released { push, is_awaited: only_bias_left && !word.is_silent() })
        })
    }

    /// Marks the point as being on its run; true if the caller cleared `NEW` and must push the
    /// point. The caller holds a lease.
    #[must_use]
    pub(crate) fn prove(&self) -> bool {
        self.update(|word| {
            if !word.is_new() {
                return Keep(false);
            }
            // Release: E5, which is margin: a lease relies on nothing that the proof orders,
            // because a run is never shorter than a held point, and arrays are at least that long.
            // E3 comes with the caller's push (E8). E4 needs nothing: a `NEW` point was never
            // queued (W2).
            Swap(word.proven().queued(), Release, true)
        })
    }

    /// Gives back a lease on a point that is beyond its run's end.
    pub(crate) fn abandon(&self) -> Abandoned {
        self.update(|word| {
            debug_assert!(word.is_new(), "an abandoned point was proved");
            let left = word.without_lease();
            // Relaxed: nothing was written under the lease. The point is freed only after every
            // thread that abandoned it has unpinned.
            if left.is_idle() {
                Swap(left.dead(), Relaxed, Abandoned::Dead)
            } else {
                Swap(left, Relaxed, Abandoned::Left)
            }
        })
    }

    /// Kills an idle point and returns the word before; `None` if the point is held or dead.
    pub(crate) fn kill(&self) -> Option<Snapshot> {
        self.update(|word| {
            if !word.is_idle() || word.is_dead() {
                return Keep(None);
            }
            // Acquire: E2. Release: E11. No model fails without the Release: the thread that
            // detached the space has since removed the root's last child, and that release sequence
            // continues.
            Swap(word.dead(), AcqRel, Some(word))
        })
    }

    /// Counts a child run; the caller holds a lease. Returns false if no more can be counted.
    #[must_use]
    pub(crate) fn add_child(&self) -> bool {
        self.update(|word| {
            if word.children() == CHILDREN {
                return Keep(false);
            }
            // Relaxed: the run was published by the map's edge E1; the lease keeps the point.
            Swap(word.with_child(), Relaxed, true)
        })
    }

    /// Subtracts a child run.
    pub(crate) fn remove_child(&self) -> ChildRemoved {
        self.update(|word| {
            debug_assert!(word.children() > 0, "child removed twice");
            let (next, push) = word.changed(word.without_child(), word.has_one_child_alone());
            // Release: E2, E3. Acquire: E4. No model fails without the Acquire: only the evictor
            // removes the last child of a point without leases, and only it takes entries out.
            Swap(next, AcqRel, ChildRemoved { push, is_silent_end: word.is_silent() && word.children() == 1 })
        })
    }

    /// As [`remove_child`](Self::remove_child), in a turn that may not look at the point: the end of
    /// the last child is a queued change even if the point is silent. Returns whether the caller
    /// must push the point.
    pub(crate) fn remove_child_for_other_shard(&self) -> bool {
        self.update(|word| {
            debug_assert!(word.children() > 0, "child removed twice");
            let is_end = word.children() == 1 && (word.is_silent() || word.leases() == 0);
            let next = word.without_child();
            // Release: E2, E3. Acquire: E4. No model fails without them: the push to the other
            // shard's queue and its drain (E8) order the same.
            if is_end { Swap(next.queued(), AcqRel, !word.is_queued()) } else { Swap(next, AcqRel, false) }
        })
    }

    /// Clears `QUEUED` when the entry leaves the queue; returns the word before.
    pub(crate) fn take_out(&self) -> Snapshot {
        // Acquire: E3. Release: E4.
        Snapshot(self.0.fetch_and(!QUEUED, AcqRel))
    }

    /// As [`take_out`](Self::take_out), and also makes the point silent, which it was not. Only the
    /// evictor calls it.
    pub(crate) fn take_out_silently(&self) -> Snapshot {
        // Clears one bit and sets the other: no other thread changes either meanwhile. Orders: as
        // `take_out`.
        Snapshot(self.0.fetch_sub(QUEUED - SILENT, AcqRel))
    }

    /// The present word, for the evictor when the point's turn comes.
    #[inline]
    pub(crate) fn look(&self) -> Snapshot {
        // Acquire: E27.
        self.load(Acquire)
    }

    /// Makes the point silent: leases on it are no longer queued. Only the evictor calls it.
    pub(crate) fn silence(&self) {
        // Relaxed: a read-modify-write continues the sequences that E2 and E4 need.
        self.0.fetch_or(SILENT, Relaxed);
    }

    /// Ends the silence: the first lease and the end of the last one are queued changes again.
    /// Returns the word then. Only the evictor calls it.
    pub(crate) fn listen(&self) -> Snapshot {
        // Acquire: E27. Release: E28.
        Snapshot(self.0.fetch_and(!SILENT, AcqRel) & !SILENT)
    }
}

/// For tests of `PrefixCache::validate`: the fields, and a change that no transition makes.
#[cfg(test)]
impl Word {
    pub(crate) const DEAD: u64 = snapshot::DEAD;
    pub(crate) const NEW: u64 = NEW;
    pub(crate) const QUEUED: u64 = QUEUED;
    pub(crate) const OPEN: u64 = snapshot::OPEN;
    pub(crate) const LEASE: u64 = LEASE;
    pub(crate) const CHILD: u64 = snapshot::CHILD;

    pub(crate) fn flip(&self, bits: u64) {
        // Relaxed: a test's cache is at rest.
        self.0.store(self.0.load(Relaxed) ^ bits, Relaxed);
    }
}

#[cfg(test)]
mod tests;
