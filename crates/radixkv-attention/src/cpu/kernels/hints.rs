//! Memory that is read soon, asked for little by little.
//!
//! A processor has few requests for memory under way at once, and a loop that asks for more waits. So the rows of the next
//! range are asked for between the steps of the work on this one, each step for its share.

use super::memory::ask;

/// Bytes that come together.
const LINE: usize = 64;
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

/// Rows of as many bytes each, `stride` bytes from one to the next.
#[derive(Debug, Clone, Copy)]
struct SpacedRows {
    /// What is asked for next, and the end of its row.
    at: *const u8,
    end: *const u8,
    bytes: usize,
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
        if bytes * count > 0 {
            self.lines += bytes.div_ceil(LINE) * count;
            self.rows.push(SpacedRows { at: first, end: first.wrapping_add(bytes), bytes, stride, count });
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
        self.over += units * self.each;
        while self.over >= ONE {
            self.over -= ONE;
            let Some(rows) = self.rows.get_mut(self.next) else {
                (self.each, self.over) = (0, 0);
                return;
            };
            ask(rows.at);
            rows.at = rows.at.wrapping_add(LINE);
            if rows.at >= rows.end {
                rows.end = rows.end.wrapping_add(rows.stride);
                rows.at = rows.end.wrapping_sub(rows.bytes);
                rows.count -= 1;
                self.next += usize::from(rows.count == 0);
            }
        }
    }
}
