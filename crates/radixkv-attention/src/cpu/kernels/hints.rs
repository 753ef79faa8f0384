//! Memory that is read soon, asked for little by little.
//!
//! A processor has few requests for memory under way at once, and a loop that asks for more waits. So the rows of the next
//! range are asked for between the steps of the work on this one, each step for its share.

use super::memory::ask;

/// Bytes that come together.
const LINE: usize = 64;
/// Fractions of a line.
const ONE: usize = 1 << 16;

/// Stretches of memory, asked for line by line.
#[derive(Debug, Default)]
pub(in super::super) struct Hints {
    /// First and end.
    stretches: Vec<[*const u8; 2]>,
    /// The stretch that is asked for next.
    next: usize,
    lines: usize,
    /// Fractions of a line for each unit of work, and those that are left over.
    each: usize,
    over: usize,
}

impl Hints {
    /// Forgets all.
    pub(in super::super) fn clear(&mut self) {
        *self = Self { stretches: std::mem::take(&mut self.stretches), ..Self::default() };
        self.stretches.clear();
    }

    /// Memory that is read soon.
    pub(in super::super) fn add(&mut self, first: *const u8, bytes: usize) {
        let end = first.wrapping_add(bytes);
        self.lines += bytes.div_ceil(LINE);
        match self.stretches.last_mut() {
            Some(last) if last[1] == first => last[1] = end,
            _ => self.stretches.push([first, end]),
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
            let Some([first, end]) = self.stretches.get_mut(self.next) else {
                self.each = 0;
                self.over = 0;
                return;
            };
            ask(*first);
            *first = first.wrapping_add(LINE);
            if *first >= *end {
                self.next += 1;
            }
        }
    }
}
