//! Records: what each participant counts, for those who add it up.
//!
//! A participant has a record of its own and writes it by plain loads and stores: counting writes no cache line that another
//! thread writes. A participant that goes leaves its record as it is, and a later one goes on with it: no count is lost, and none
//! is added up twice. Participants beyond [`RECORDS`] share one more record, by read-modify-writes.
//!
//! # Invariants
//!
//! - **RC1** A record with a number is written only by the participant that holds the number.

use std::array;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use super::Idle;
use crate::sync::gauge::{AtomicU64, AtomicUsize, Relaxed};
use crate::sync::model_size;

/// Counts in a record: with its number two cache lines, which are fetched together.
pub(crate) const COUNTS: usize = 15;

/// Records with a number: as many as sessions and calls have participants, but for races.
const RECORDS: usize = model_size(144, 8);

/// In place of a number: the record that is shared.
const SHARED: usize = usize::MAX;

#[derive(Debug)]
struct Counts {
    number: usize,
    counts: [AtomicU64; COUNTS],
}

impl Counts {
    fn new(number: usize) -> CachePadded<Self> {
        CachePadded::new(Self { number, counts: array::from_fn(|_| AtomicU64::new(0)) })
    }
}

/// The records of one domain.
#[derive(Debug)]
pub(super) struct Records {
    numbered: Box<[CachePadded<Counts>]>,
    shared: CachePadded<Counts>,
    /// Numbers given out so far.
    issued: AtomicUsize,
    /// Numbers of participants that have gone.
    left: Idle<usize, RECORDS>,
}

impl Records {
    pub(super) fn new() -> Self {
        Self {
            numbered: (0..RECORDS).map(Counts::new).collect(),
            shared: Counts::new(SHARED),
            issued: AtomicUsize::new(0),
            left: Idle::new(),
        }
    }

    /// A record for a new participant, which the domain must outlive. Lock-free.
    pub(super) fn hold(&self) -> Record {
        // Relaxed: each number is given out once; what was counted under one that was left comes with it (`Idle`).
        let number = self.left.take().unwrap_or_else(|| self.issued.fetch_add(1, Relaxed));
        Record(NonNull::from(&**self.numbered.get(number).unwrap_or(&self.shared)))
    }

    /// Takes the record of a participant that goes.
    pub(super) fn leave(&self, record: &Record) {
        let number = record.counts().number;
        if number != SHARED {
            // There is a place for each number.
            self.left.put(number);
        }
    }

    /// All records added up. Counts that are written meanwhile may be missing.
    pub(super) fn sum(&self) -> [u64; COUNTS] {
        // Relaxed, twice: numbers to look at.
        let issued = self.issued.load(Relaxed).min(RECORDS);
        let records = self.numbered[..issued].iter().chain([&self.shared]);
        records.fold([0; COUNTS], |sum, record| array::from_fn(|i| sum[i] + record.counts[i].load(Relaxed)))
    }
}

/// A participant's record.
#[derive(Debug)]
pub(crate) struct Record(NonNull<Counts>);

impl Record {
    fn counts(&self) -> &Counts {
        // SAFETY: the domain outlives its participants, and with them their records.
        unsafe { self.0.as_ref() }
    }

    /// Adds to some of its counts. Wait-free.
    #[inline]
    pub(crate) fn add<const N: usize>(&self, amounts: [(usize, u64); N]) {
        let Counts { number, counts } = self.counts();
        if *number == SHARED {
            return self.add_shared(&amounts);
        }
        for (i, amount) in amounts {
            // Relaxed, twice: numbers to look at, and no other thread writes this record (RC1).
            counts[i].store(counts[i].load(Relaxed).wrapping_add(amount), Relaxed);
        }
    }

    #[cold]
    fn add_shared(&self, amounts: &[(usize, u64)]) {
        for &(i, amount) in amounts {
            // Relaxed: a number to look at.
            self.counts().counts[i].fetch_add(amount, Relaxed);
        }
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_left_goes_on_with_its_counts() {
        let records = Records::new();
        let first = records.hold();
        first.add([(0, 5), (3, 1)]);
        records.leave(&first);
        let second = records.hold();
        second.add([(0, 2)]);
        assert_eq!(second.counts().number, 0, "the same one");
        assert_eq!((records.sum()[0], records.sum()[3]), (7, 1));
    }

    #[test]
    fn participants_beyond_the_records_share_one() {
        let records = Records::new();
        let held: Vec<_> = (0..RECORDS + 2).map(|_| records.hold()).collect();
        assert_eq!(held.iter().filter(|record| record.counts().number == SHARED).count(), 2);
        held.iter().for_each(|record| record.add([(1, 1)]));
        assert_eq!(records.sum()[1], RECORDS as u64 + 2);
        held.iter().for_each(|record| records.leave(record));
        assert_ne!(records.hold().counts().number, SHARED);
    }
}
