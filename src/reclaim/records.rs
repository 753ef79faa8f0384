//! Records: per-participant counters of the cache's operations, added up when statistics are read.
//!
//! Each participant has its own record and writes it by relaxed loads and stores, so counting
//! writes no cache line that another thread writes. When a participant is dropped, a later one
//! continues its record, so no count is lost or added twice. Participants beyond [`RECORDS`] share
//! one more record, which they write by read-modify-writes.
//!
//! # Invariants
//!
//! - **RC1** A record with a number is written only by the participant that holds the number.

use std::array;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use super::Idle;
use super::rows::{FreeRows, ROW_COUNTS, ROWS, Row, RowId};
use crate::sync::gauge::{AtomicU64, AtomicUsize, Relaxed};
use crate::sync::{Arc, OnceLock, model_size};

/// Number of counts in a record, without its rows.
pub(crate) const COUNTS: usize = 11;

/// Number of unshared records: enough for the participants of sessions and calls, except in races.
const RECORDS: usize = model_size(144, 8);

/// The number of the shared record.
const SHARED: usize = usize::MAX;

/// A row of a record.
#[derive(Debug)]
#[repr(align(64))]
struct Counted([AtomicU64; ROW_COUNTS]);

impl Counted {
    fn new() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

#[derive(Debug)]
struct Counts {
    /// Row 0, which counts most operations.
    first: Counted,
    counts: [AtomicU64; COUNTS],
    /// Allocated bytes of index memory.
    allocated: [AtomicU64; 1],
    number: usize,
    /// The other rows, allocated when the first of them is used.
    rest: OnceLock<Box<[Counted]>>,
}

impl Counts {
    fn new(number: usize) -> CachePadded<Self> {
        let counts = array::from_fn(|_| AtomicU64::new(0));
        let allocated = [AtomicU64::new(0)];
        CachePadded::new(Self { first: Counted::new(), counts, allocated, number, rest: OnceLock::new() })
    }

    /// Row `row`, which is not 0. `get_or_init` waits for no thread: only a record's owner
    /// allocates its rows, and those of the shared record are made in `Records::new`.
    #[inline(never)]
    fn later_row(&self, row: usize) -> &Counted {
        &self.rest.get_or_init(|| (1..ROWS).map(|_| Counted::new()).collect())[row - 1]
    }

    /// The rows that may have counts.
    fn used_rows(&self) -> impl Iterator<Item = &Counted> {
        [&self.first].into_iter().chain(self.rest.get().into_iter().flatten())
    }

    /// The row, if it may have counts.
    fn used_row(&self, row: usize) -> Option<&Counted> {
        if row == 0 { Some(&self.first) } else { Some(&self.rest.get()?[row - 1]) }
    }
}

/// The records of one domain.
#[derive(Debug)]
pub(crate) struct Records {
    numbered: Box<[CachePadded<Counts>]>,
    shared: CachePadded<Counts>,
    /// Numbers given out so far.
    issued: AtomicUsize,
    /// Numbers of dropped participants, for later ones.
    left: Idle<usize, RECORDS>,
    rows: Arc<FreeRows>,
}

impl Records {
    pub(super) fn new() -> Self {
        let shared = Counts::new(SHARED);
        shared.later_row(1);
        Self {
            numbered: (0..RECORDS).map(Counts::new).collect(),
            shared,
            issued: AtomicUsize::new(0),
            left: Idle::new(),
            rows: Arc::new(FreeRows::new()),
        }
    }

    /// Takes a row for a namespace. Lock-free.
    pub(crate) fn row(&self) -> Row {
        FreeRows::take(&self.rows, |row| self.sum_of_row(row))
    }

    /// Takes a record for a new participant, which the domain must outlive. Lock-free.
    pub(super) fn hold(&self) -> Record {
        // Relaxed: each new number is issued once; a number from `left` comes with its counts.
        let number = self.left.take().unwrap_or_else(|| self.issued.fetch_add(1, Relaxed));
        let (counts, first) = self.numbered.get(number).map_or((&self.shared, SHARED), |own| (own, 0));
        Record { counts: NonNull::from(&**counts), first }
    }

    /// Takes back the record of a dropped participant.
    pub(super) fn leave(&self, record: &Record) {
        let number = record.counts().number;
        if number != SHARED {
            // `left` has a slot for each number.
            self.left.put(number);
        }
    }

    /// The sum of all records. Concurrent counts may be missing.
    pub(crate) fn sum(&self) -> [u64; COUNTS] {
        add_up(self.used().map(|record| &record.counts))
    }

    /// Bytes of index memory that all participants have allocated.
    pub(super) fn allocated(&self) -> u64 {
        add_up(self.used().map(|record| &record.allocated))[0]
    }

    /// The sums of a row, minus its counts from before its owner took it.
    pub(crate) fn counted_in(&self, row: &Row) -> [u64; ROW_COUNTS] {
        row.since(self.sum_of_row(row.id().number))
    }

    fn sum_of_row(&self, row: usize) -> [u64; ROW_COUNTS] {
        add_up(self.used().filter_map(|record| Some(&record.used_row(row)?.0)))
    }

    /// The sum of all rows of all records.
    pub(crate) fn sum_of_rows(&self) -> [u64; ROW_COUNTS] {
        add_up(self.used().flat_map(Counts::used_rows).map(|row| &row.0))
    }

    fn used(&self) -> impl Iterator<Item = &Counts> {
        // Relaxed: a statistic.
        let issued = self.issued.load(Relaxed);
        let shared = (issued > RECORDS).then_some(&self.shared);
        self.numbered[..issued.min(RECORDS)].iter().chain(shared).map(|record| &**record)
    }
}

fn add_up<'a, const N: usize>(all: impl Iterator<Item = &'a [AtomicU64; N]>) -> [u64; N] {
    // Relaxed: statistics.
    all.fold([0; N], |sum, counts| array::from_fn(|i| sum[i].wrapping_add(counts[i].load(Relaxed))))
}

/// A participant's record.
#[derive(Debug)]
pub(crate) struct Record {
    counts: NonNull<Counts>,
    /// The row for the fast path of `add_in`: 0, or no row (`SHARED`) in the shared record.
    first: usize,
}

impl Record {
    fn counts(&self) -> &Counts {
        // SAFETY: the domain outlives its participants, and with them their records.
        unsafe { self.counts.as_ref() }
    }

    /// Adds to some of its counts. Wait-free.
    #[inline]
    pub(crate) fn add<const N: usize>(&self, amounts: [(usize, u64); N]) {
        let Counts { number, counts, .. } = self.counts();
        add(counts, *number, amounts);
    }

    /// Counts bytes of index memory that its participant has allocated. Wait-free.
    #[inline]
    pub(super) fn add_allocated(&self, bytes: usize) {
        let Counts { number, allocated, .. } = self.counts();
        add(allocated, *number, [(0, bytes as u64)]);
    }

    /// Adds to some counts of one of its rows. The first use of any row but row 0 allocates.
    #[inline]
    pub(crate) fn add_in<const N: usize>(&self, row: RowId, amounts: [(usize, u64); N]) {
        let counts = self.counts();
        if row.number == self.first {
            return add_alone(&counts.first.0, amounts);
        }
        let in_row = if row.number == 0 { &counts.first } else { counts.later_row(row.number) };
        add(&in_row.0, counts.number, amounts);
    }
}

#[inline]
fn add<const N: usize>(counts: &[AtomicU64], number: usize, amounts: [(usize, u64); N]) {
    if number == SHARED {
        return add_shared(counts, &amounts);
    }
    add_alone(counts, amounts);
}

#[inline]
fn add_alone<const N: usize>(counts: &[AtomicU64], amounts: [(usize, u64); N]) {
    for (i, amount) in amounts {
        // Relaxed, twice: statistics, and no other thread writes this record (RC1).
        counts[i].store(counts[i].load(Relaxed).wrapping_add(amount), Relaxed);
    }
}

#[cold]
fn add_shared(counts: &[AtomicU64], amounts: &[(usize, u64)]) {
    for &(i, amount) in amounts {
        // Relaxed: a statistic.
        counts[i].fetch_add(amount, Relaxed);
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
