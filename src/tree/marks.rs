//! Marks: what users asked for a prefix, kept at its point and above what the policy knows of its use.
//!
//! A point keeps at most two pairs of a priority and the moment it expires: the pair of the highest priority, and the
//! pair that lasts longest. Both are maxima, and so is the last override (`retain` or `demote`). So marks can be joined
//! in any order, and what flows down to a point when those beyond it have gone is what marking every block of every
//! path would have given it. Of three pairs of which none is at least as high and as lasting as another, the one in
//! between is dropped; a pair does not come back once it was dropped, and counts as the highest even after its time.
//!
//! Most points have no marks: they cost a word. The first mark makes a record, which lives as long as its point.
//!
//! # Who writes
//!
//! Whoever holds a lease on the point, and the evictor where marks flow down. A mark that was made before its holder
//! let go is seen by the evictor that takes the step out of the queue, and by the one that kills the point (word.rs,
//! E2, E3): so none is ranked without it, and none flows without it.
//!
//! # Invariants
//!
//! - **K1** A record is published once, never replaced, and freed with its point.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E19 | publishing the record | every load of it | a record that is found is initialised |
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use crate::reclaim::{Canary, Guard, Node, Own, free_owned};
use crate::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bits of a moment of expiry.
const EXPIRY_BITS: u32 = 56;
/// The moment of expiry of what does not expire: in nanoseconds more than two years.
const NEVER: u64 = (1 << EXPIRY_BITS) - 1;

/// Set in an override that retains; clear in one that demotes.
const RETAINED: u64 = 1;

/// Marks at one moment. Zero in each is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marked {
    /// `priority:8 | expiry:56`: the highest, and of equals the longest.
    highest: u64,
    /// `expiry:56 | priority:8`: the longest, and of equals the highest.
    longest: u64,
    /// `time + 1:63 | RETAINED`: the last override; of two at one time retaining.
    last_override: u64,
}

impl Marked {
    /// What nobody has marked.
    pub(crate) const NONE: Self = Self { highest: 0, longest: 0, last_override: 0 };

    /// A priority up to a moment of the clock that deadlines go by; for good without one.
    pub(crate) fn priority(priority: u8, expiry: Option<u64>) -> Self {
        let (priority, expiry) = (u64::from(priority), expiry.unwrap_or(NEVER).min(NEVER));
        Self { highest: priority << EXPIRY_BITS | expiry, longest: expiry << 8 | priority, ..Self::NONE }
    }

    /// Demoted at `time`, by the clock that touches are stamped with.
    pub(crate) fn demoted(time: u64) -> Self {
        Self { last_override: (time + 1) << 1, ..Self::NONE }
    }

    /// Retained at `time`: a demotion up to then is over.
    pub(crate) fn retained(time: u64) -> Self {
        Self { last_override: (time + 1) << 1 | RETAINED, ..Self::NONE }
    }

    /// What both say together.
    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            highest: self.highest.max(other.highest),
            longest: self.longest.max(other.longest),
            last_override: self.last_override.max(other.last_override),
        }
    }

    /// The highest priority that has not expired at `now`, and when that changes.
    pub(crate) fn priority_at(self, now: u64) -> Option<(u8, Option<u64>)> {
        let pairs = [
            (self.highest >> EXPIRY_BITS, self.highest & NEVER),
            (self.longest & u64::from(u8::MAX), self.longest >> 8),
        ];
        let (priority, expiry) = pairs.into_iter().find(|&(_, expiry)| now < expiry || expiry == NEVER)?;
        Some((priority as u8, Some(expiry).filter(|&expiry| expiry != NEVER)))
    }

    /// Whether the last override is a demotion that no use at `last` or before it has undone.
    pub(crate) fn is_demoted(self, last: u64) -> bool {
        self.last_override & RETAINED == 0 && self.last_override >> 1 > last
    }
}

/// A point's marks.
#[derive(Debug)]
pub(crate) struct Marks(AtomicPtr<Record>);

#[derive(Debug)]
struct Record {
    highest: AtomicU64,
    longest: AtomicU64,
    last_override: AtomicU64,
    canary: Canary,
}

// SAFETY: a record is a `Box` of numbers.
unsafe impl Node for Record {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

impl Marks {
    pub(crate) fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn record(&self) -> Option<&Record> {
        // Acquire: E19.
        let record = NonNull::new(self.0.load(Acquire))?;
        // SAFETY: K1: it lives as long as `self`.
        Some(unsafe { record.as_ref() })
    }

    pub(crate) fn read(&self) -> Marked {
        // Relaxed: as the statistics: the release of the marker's lease publishes them (word.rs, E2, E3).
        self.record().map_or(Marked::NONE, |record| Marked {
            highest: record.highest.load(Relaxed),
            longest: record.longest.load(Relaxed),
            last_override: record.last_override.load(Relaxed),
        })
    }

    /// Joins `marked` to what is marked. Allocates where nothing was.
    pub(crate) fn join(&self, marked: Marked, guard: &Guard<'_>) {
        if marked == Marked::NONE {
            return;
        }
        let record = self.record().unwrap_or_else(|| self.publish(guard));
        let raise = |field: &AtomicU64, to: u64| {
            // Relaxed: a maximum; published as said at `read`.
            if field.load(Relaxed) < to {
                field.fetch_max(to, Relaxed);
            }
        };
        raise(&record.highest, marked.highest);
        raise(&record.longest, marked.longest);
        raise(&record.last_override, marked.last_override);
    }

    /// The point's record; one of several that make it at once is published.
    #[cold]
    fn publish(&self, guard: &Guard<'_>) -> &Record {
        let empty = || AtomicU64::new(0);
        let record = Record { highest: empty(), longest: empty(), last_override: empty(), canary: Canary::new() };
        let record = Own::new(record, guard);
        crate::sync::point!("marks::made");
        // Release: E19. Where another was first, `record` acquires.
        match self.0.compare_exchange(ptr::null_mut(), record.as_ptr(), Release, Relaxed) {
            Ok(_) => _ = record.publish(),
            Err(_) => drop(record),
        }
        self.record().expect("published by us or by another")
    }

    /// Bytes that dropping the marks frees.
    pub(crate) fn bytes(&self) -> usize {
        self.record().map_or(0, Node::bytes)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // Relaxed: dropping excludes every other user.
        if let Some(record) = NonNull::new(self.0.load(Relaxed)) {
            // SAFETY: K1: nobody else has it any more.
            unsafe { free_owned(record) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(u8, Option<u64>)]) -> Marked {
        let marked = pairs.iter().map(|&(priority, expiry)| Marked::priority(priority, expiry));
        marked.fold(Marked::NONE, Marked::joined)
    }

    #[test]
    fn the_highest_priority_that_has_not_expired_counts() {
        assert_eq!(Marked::NONE.priority_at(0), None);
        let two = pairs(&[(20, None), (80, Some(10))]);
        assert_eq!(two.priority_at(9), Some((80, Some(10))));
        assert_eq!(two.priority_at(10), Some((20, None)));
        assert_eq!(pairs(&[(0, Some(5))]).priority_at(4), Some((0, Some(5))));
        assert_eq!(pairs(&[(0, Some(5))]).priority_at(5), None);
        assert_eq!(pairs(&[(7, None)]).priority_at(u64::MAX), Some((7, None)));
        assert_eq!(pairs(&[(7, Some(u64::MAX))]).priority_at(u64::MAX), Some((7, None)), "two years are for good");
    }

    #[test]
    fn of_three_pairs_the_one_in_between_is_dropped_in_any_order() {
        let [high, middle, long] = [(90, Some(10)), (60, Some(100)), (40, Some(200))];
        let kept = pairs(&[high, long]);
        for order in [[high, middle, long], [middle, long, high], [long, high, middle], [long, middle, high]] {
            assert_eq!(pairs(&order), kept);
        }
        assert_eq!(kept.priority_at(50), Some((40, Some(200))));
    }

    #[test]
    fn a_use_or_a_retention_undoes_a_demotion() {
        let demoted = Marked::demoted(5);
        assert!(demoted.is_demoted(0) && demoted.is_demoted(5) && !demoted.is_demoted(6));
        assert!(!demoted.joined(Marked::retained(5)).is_demoted(0), "of one time retaining wins");
        assert!(Marked::retained(4).joined(demoted).is_demoted(0), "the last one counts");
        assert!(!Marked::NONE.is_demoted(0) && Marked::demoted(0).is_demoted(0));
    }
}
