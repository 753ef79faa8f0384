//! Prefetches memory that is read soon, little by little.
//!
//! A processor can have only a few memory requests in flight, and a loop that issues more of them
//! waits. So the rows of the next range are prefetched between the steps of the work on this one, a
//! share of them in each step.

use super::memory::ask;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines that are prefetched in one step of a loop.
const STEP: usize = 4;
/// Fractions in a line, for shares that are not whole lines.
const ONE: usize = 1 << 16;

/// Rows of memory that are prefetched line by line.
#[derive(Debug, Default)]
pub(in super::super) struct Hints {
    rows: Vec<SpacedRows>,
    /// Index in `rows` of the rows that are prefetched next.
    next: usize,
    lines: usize,
    /// Fractions of a line to prefetch for each unit of work, and those left over from earlier
    /// steps.
    each: usize,
    over: usize,
}

/// Rows of `lines` lines each, `stride` bytes from one to the next.
#[derive(Debug, Clone, Copy)]
struct SpacedRows {
    /// The current row, and how many of its lines were prefetched.
    row: *const u8,
    asked: usize,
    lines: usize,
    stride: usize,
    /// Rows that are left.
    count: usize,
}

impl Hints {
    /// Removes all rows.
    pub(in super::super) fn clear(&mut self) {
        *self = Self { rows: std::mem::take(&mut self.rows), ..Self::default() };
        self.rows.clear();
    }

    /// Adds memory that is read soon: `count` rows of `bytes` bytes, `stride` bytes from one to the
    /// next.
    pub(in super::super) fn add(&mut self, first: *const u8, bytes: usize, [count, stride]: [usize; 2]) {
        // Rows without gaps are one row.
        let (bytes, count) = if bytes == stride { (bytes * count, 1) } else { (bytes, count) };
        let lines = bytes.div_ceil(LINE);
        if lines * count > 0 {
            self.lines += lines * count;
            self.rows.push(SpacedRows { row: first, asked: 0, lines, stride, count });
        }
    }

    /// Begins the steps, which have `units` units of work together.
    pub(in super::super) fn begin(&mut self, units: usize) {
        self.each = (self.lines * ONE).div_ceil(units.max(1));
    }

    /// Prefetches the share of a step of `units` units. It reads and changes nothing, and does
    /// nothing where there is no instruction for it.
    #[inline(always)]
    pub(in super::super) fn step(&mut self, units: usize) {
        let _all_asked = self.run(units, 0);
    }

    /// The share of `units` units, to be prefetched in `steps` steps of a loop.
    #[inline(always)]
    pub(super) fn run(&mut self, units: usize, steps: usize) -> Run {
        self.over += units * self.each;
        if self.over < ONE {
            return Run::NONE;
        }
        let lines = self.over / ONE;
        self.over %= ONE;
        self.take(lines, steps)
    }

    /// Takes `lines` lines, or those that are left. Lines that do not fit into the steps are
    /// prefetched at once.
    #[inline(never)]
    fn take(&mut self, mut lines: usize, steps: usize) -> Run {
        while let Some(rows) = self.rows.get_mut(self.next) {
            let (at, some) = (rows.row.wrapping_add(rows.asked * LINE), lines.min(rows.lines - rows.asked));
            rows.asked += some;
            if rows.asked == rows.lines {
                (rows.row, rows.asked) = (rows.row.wrapping_add(rows.stride), 0);
                rows.count -= 1;
                self.next += usize::from(rows.count == 0);
            }
            lines -= some;
            let steps = if lines == 0 { steps.min(some / STEP) } else { 0 };
            (steps * STEP..some).for_each(|line| ask(at.wrapping_add(line * LINE)));
            if lines == 0 {
                return Run { at, steps };
            }
        }
        self.each = 0;
        Run::NONE
    }
}

/// Adjacent lines that are prefetched in the steps of a loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    at: *const u8,
    /// Steps that are left.
    steps: usize,
}

impl Run {
    pub(super) const NONE: Self = Self { at: std::ptr::null(), steps: 0 };

    #[inline(always)]
    pub(super) fn step(&mut self) {
        if self.steps > 0 {
            (0..STEP).for_each(|line| ask(self.at.wrapping_add(line * LINE)));
            self.at = self.at.wrapping_add(STEP * LINE);
            self.steps -= 1;
        }
    }
}
