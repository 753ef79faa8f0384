//! Memory that is read soon, asked for little by little.
//!
//! A processor has few requests for memory under way at once, and a loop that asks for more waits. So the rows of the next
//! range are asked for between the steps of the work on this one, each step for its share.

use super::memory::ask;

/// Bytes that come together.
const LINE: usize = 64;
/// Lines of a step of a loop.
const STEP: usize = 4;
/// Fractions of a line.
const ONE: usize = 1 << 16;

/// Rows of memory, asked for line by line.
#[derive(Debug, Default)]
pub(in super::super) struct Hints {
    rows: Vec<SpacedRows>,
    /// The rows that are asked for next.
    next: usize,
    lines: usize,
    /// Fractions of a line for each unit of work, and those that are left over.
    each: usize,
    over: usize,
}

/// Rows of as many lines each, `stride` bytes from one to the next.
#[derive(Debug, Clone, Copy)]
struct SpacedRows {
    /// The row that is asked for now, and how many of its lines were.
    row: *const u8,
    asked: usize,
    lines: usize,
    stride: usize,
    /// Rows that are left.
    count: usize,
}

impl Hints {
    /// Forgets all.
    pub(in super::super) fn clear(&mut self) {
        *self = Self { rows: std::mem::take(&mut self.rows), ..Self::default() };
        self.rows.clear();
    }

    /// Memory that is read soon: so many rows of so many bytes, `stride` bytes from one to the next.
    pub(in super::super) fn add(&mut self, first: *const u8, bytes: usize, [count, stride]: [usize; 2]) {
        // Without gaps they are one row.
        let (bytes, count) = if bytes == stride { (bytes * count, 1) } else { (bytes, count) };
        let lines = bytes.div_ceil(LINE);
        if lines * count > 0 {
            self.lines += lines * count;
            self.rows.push(SpacedRows { row: first, asked: 0, lines, stride, count });
        }
    }

    /// From here on steps follow, of so many units of work together.
    pub(in super::super) fn begin(&mut self, units: usize) {
        self.each = (self.lines * ONE).div_ceil(units.max(1));
    }

    /// Asks for the share of a step of so many units. It reads and changes nothing, and does nothing on processors that
    /// have no such instruction.
    #[inline(always)]
    pub(in super::super) fn step(&mut self, units: usize) {
        let _all_asked = self.run(units, 0);
    }

    /// The share of so many units, to be asked for in so many steps of a loop.
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

    /// Takes so many lines, or those that are left. What the steps have no room for is asked for at once.
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

/// Lines that lie side by side, asked for in the steps of a loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    at: *const u8,
    /// That are left.
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
