//! Marks: the priorities and demotions that users gave a prefix, stored at its point. The ranking
//! compares them before the point's statistics.
//!
//! A point keeps at most two pairs of a priority and its expiry: the pair with the highest
//! priority, and the pair that lasts longest. Both are maxima, and so is the latest demotion or
//! undoing (`last_word`). So marks can be joined in any order: once the points beyond have died, a
//! point has the marks it would have if every block of every marked path were marked. Of three
//! pairs, none both as high and as long as another, the middle one is dropped and does not come
//! back. The pair with the highest priority is kept even after it has expired.
//!
//! The cache numbers its demotions ([`Demotions`]). A use undoes the demotions before it. If its
//! time is later than theirs, no mark is needed. If the clock has not passed the time of the latest
//! demotion, the use also marks the number of that demotion as undone. So of a demotion and a use
//! at the same time, the later call counts. A use pays one load for that.
//!
//! Most points have no marks, which costs one word. Each mark makes a new record, which replaces
//! the one before. So a record never changes.
//!
//! # Which threads write
//!
//! Threads with a lease on the point write marks, and so does the evictor when marks flow down and
//! when it takes over a request to retain. The record also has the point's anchor. A mark made
//! before the lease is released is visible to the evictor when it takes the change out of the queue
//! and when it kills the point (word.rs, E2, E3). So a point is never ranked without its marks, and
//! its statistics never flow without them.
//!
//! # Invariants
//!
//! - **K1** A record is never written after it was published, and is retired by the thread that
//!   replaced it.
//! - **K2** The record of a dead point stays, and is freed with the point.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E19 | publishing a record | every load of it | a record that is found is initialised |
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use super::anchor::Anchor;
use crate::reclaim::{Canary, Guard, Node, Own, Ref, free_owned};
use crate::sync::Arc;
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::gauge::AtomicU64;

/// The number and the latest time of a cache's demotions.
///
/// Every use reads it, and only demotions write it. It orders only calls that their callers order
/// already, so every access is relaxed and no model explores it.
#[derive(Debug, Default)]
pub(crate) struct Demotions {
    count: AtomicU64,
    /// The latest time of a demotion.
    latest: AtomicU64,
}

impl Demotions {
    /// Counts a demotion at `time` and returns its mark.
    pub(crate) fn demote(&self, time: u64) -> Marked {
        // Relaxed, both: they order only calls that their callers order already.
        self.latest.fetch_max(time, Relaxed);
        let number = self.count.fetch_add(1, Relaxed) + 1;
        Marked { last_word: number << 1, demoted_at: time, ..Marked::NONE }
    }

    /// Returns the mark that undoes all demotions so far, whatever their times.
    pub(crate) fn undone(&self) -> Marked {
        // Relaxed: a caller that must see a demotion is ordered after it.
        let number = self.count.load(Relaxed);
        // If there is nothing to undo, there is no mark.
        let last_word = if number == 0 { 0 } else { number << 1 | KEPT };
        Marked { last_word, ..Marked::NONE }
    }

    /// Whether a use at `now` is too early to undo an earlier demotion by its time only.
    #[inline]
    pub(crate) fn may_hide(&self, now: u64) -> bool {
        // Relaxed: a caller that must see a demotion is ordered after it.
        now <= self.latest.load(Relaxed)
    }
}

/// Set in a `last_word` that undoes demotions; clear in that of a demotion.
const KEPT: u64 = 1;

/// When a priority ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Expiry {
    /// The priority counts before this time.
    At(u64),
    Never,
}

impl Expiry {
    fn has_come(self, now: u64) -> bool {
        matches!(self, Self::At(time) if time <= now)
    }
}

/// The marks of a point at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marked {
    /// The highest priority; among equal ones, the longest.
    highest: Option<(i64, Expiry)>,
    /// The priority that lasts longest; among equal ones, the highest.
    longest: Option<(Expiry, i64)>,
    /// `number of demotions:63 | KEPT` of the latest demotion or undoing. An undoing has the number
    /// of the latest demotion before it, and compares greater.
    last_word: u64,
    /// The latest time at which it was demoted.
    demoted_at: u64,
}

impl Marked {
    /// No marks.
    pub(crate) const NONE: Self = Self { highest: None, longest: None, last_word: 0, demoted_at: 0 };

    /// A priority until `expiry`, on the clock of deadlines; without an expiry it never ends.
    pub(crate) fn priority(priority: i64, expiry: Option<u64>) -> Self {
        let expiry = expiry.map_or(Expiry::Never, Expiry::At);
        Self { highest: Some((priority, expiry)), longest: Some((expiry, priority)), ..Self::NONE }
    }

    /// The marks of both.
    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            highest: self.highest.max(other.highest),
            longest: self.longest.max(other.longest),
            last_word: self.last_word.max(other.last_word),
            demoted_at: self.demoted_at.max(other.demoted_at),
        }
    }

    /// The highest priority that has not expired at `now`, and the time at which it expires.
    pub(crate) fn priority_at(self, now: u64) -> Option<(i64, Option<u64>)> {
        let longest = self.longest.map(|(expiry, priority)| (priority, expiry));
        let mut pairs = [self.highest, longest].into_iter().flatten();
        let (priority, expiry) = pairs.find(|(_, expiry)| !expiry.has_come(now))?;
        match expiry {
            Expiry::At(time) => Some((priority, Some(time))),
            Expiry::Never => Some((priority, None)),
        }
    }

    /// Whether `last_word` is from a demotion that the last use, at time `last`, did not undo.
    pub(crate) fn is_demoted(self, last: u64) -> bool {
        self.last_word != 0 && self.last_word & KEPT == 0 && last <= self.demoted_at
    }
}

/// The open requests of sessions to retain a point. Each session has taken a lease, which the
/// evictor gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetentionRequest {
    /// The latest requested time, on the clock of deadlines.
    pub(crate) until: u64,
    pub(crate) leases: u32,
}

/// The marks of a point.
#[derive(Debug)]
pub(crate) struct Marks(AtomicPtr<Record>);

#[derive(Debug)]
struct Record {
    marked: Marked,
    /// A request that the evictor has not taken over yet. It does not flow down.
    asked: Option<RetentionRequest>,
    /// The anchor of the weak leases on the point, if there ever was one. It does not flow down.
    anchor: Option<Arc<Anchor>>,
    canary: Canary,
}

// SAFETY: a record is a `Box` of numbers and a counted reference to an anchor; dropping it follows
// no pointer to a node.
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

    fn record<'g>(&self, guard: &'g Guard<'_>) -> Option<Ref<'g, Record>> {
        // Acquire: E19.
        Ref::from_ptr(self.0.load(Acquire), guard)
    }

    /// The marks, if there are any.
    #[inline]
    pub(crate) fn made<'g>(&self, guard: &'g Guard<'_>) -> Option<&'g Marked> {
        self.record(guard).map(|record| &record.as_ref().marked).filter(|marked| **marked != Marked::NONE)
    }

    /// Joins `marked` to the marks. Allocates only if that changes them. Lock-free.
    pub(crate) fn join(&self, marked: Marked, guard: &Guard<'_>) {
        if marked != Marked::NONE {
            self.change(guard, |before, asked| (before.joined(marked), asked));
        }
    }

    /// Joins `marked` and asks the evictor to retain the point until `until`. The caller has taken
    /// the lease for it, and announces the point afterwards.
    pub(crate) fn ask(&self, marked: Marked, until: u64, guard: &Guard<'_>) {
        self.change(guard, |before, asked| {
            let (latest, leases) = asked.map_or((0, 0), |asked| (asked.until, asked.leases));
            (before.joined(marked), Some(RetentionRequest { until: latest.max(until), leases: leases + 1 }))
        });
    }

    /// Takes over the open request. Only the evictor calls it.
    pub(crate) fn take_asked(&self, guard: &Guard<'_>) -> Option<RetentionRequest> {
        self.record(guard)?.asked?;
        self.change(guard, |before, _| (before, None))
    }

    /// The open request. For `validate`, while the cache is at rest.
    pub(crate) fn asked(&self, guard: &Guard<'_>) -> Option<RetentionRequest> {
        self.record(guard)?.asked
    }

    /// Replaces the record, unless `to` changes nothing; returns the open request before.
    fn change(
        &self,
        guard: &Guard<'_>,
        to: impl Fn(Marked, Option<RetentionRequest>) -> (Marked, Option<RetentionRequest>),
    ) -> Option<RetentionRequest> {
        loop {
            let there = self.record(guard);
            let before = there.map_or((Marked::NONE, None), |record| (record.marked, record.asked));
            let (marked, asked) = to(before.0, before.1);
            if (marked, asked) == before {
                return before.1;
            }
            let anchor = there.and_then(|record| record.as_ref().anchor.clone());
            let record = Own::new(Record { marked, asked, anchor, canary: Canary::new() }, guard);
            if self.replace(there, record, guard) {
                return before.1;
            }
        }
    }

    /// Puts `record` in place of the one that was found; false if another thread was first.
    fn replace<'g>(&self, there: Option<Ref<'g, Record>>, record: Own<'g, Record>, guard: &Guard<'_>) -> bool {
        let expected = there.map_or(ptr::null_mut(), Ref::as_ptr);
        crate::sync::failpoint!("marks::made");
        // Release: E19. If another thread was first, `record` acquires the newer one. No record
        // returns to the same address while a guard protects it.
        let replaced = self.0.compare_exchange(expected, record.as_ptr(), Release, Relaxed).is_ok();
        if replaced {
            record.publish();
            there.into_iter().for_each(|there| guard.retire(there));
        }
        replaced
    }

    /// The anchor of the point; made if there is none. The caller has a lease on the point.
    /// Lock-free.
    pub(crate) fn anchor(&self, make: impl Fn() -> Arc<Anchor>, guard: &Guard<'_>) -> Arc<Anchor> {
        loop {
            let there = self.record(guard);
            if let Some(anchor) = there.and_then(|record| record.as_ref().anchor.clone()) {
                return anchor;
            }
            let (marked, asked) = there.map_or((Marked::NONE, None), |record| (record.marked, record.asked));
            let (anchor, canary) = (make(), Canary::new());
            let record = Own::new(Record { marked, asked, anchor: Some(Arc::clone(&anchor)), canary }, guard);
            if self.replace(there, record, guard) {
                return anchor;
            }
        }
    }

    /// Clears the killed point's anchor, if it has one. Only the evictor calls it.
    #[inline]
    pub(crate) fn cast_off(&self, guard: &Guard<'_>) {
        if let Some(anchor) = self.record(guard).and_then(|record| record.as_ref().anchor.as_ref()) {
            anchor.cast_off();
        }
    }

    /// Bytes that dropping the marks frees. The point can no longer be marked.
    pub(crate) fn bytes(&self) -> usize {
        // Acquire: E19.
        let record = NonNull::new(self.0.load(Acquire));
        // SAFETY: K2: the point is dead or not published yet, so its record stays.
        record.map_or(0, |record| unsafe { record.as_ref() }.bytes())
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // Relaxed: dropping excludes every other user.
        if let Some(record) = NonNull::new(self.0.load(Relaxed)) {
            // SAFETY: K2: no other thread has the record any more.
            unsafe { free_owned(record) };
        }
    }
}

#[cfg(test)]
mod tests;
