//! Memory that is read soon, asked for little by little.
//!
//! A processor has few requests for memory under way at once, and a loop that asks for more waits. So the rows of the next
//! range are asked for between the steps of the work on this one.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86::prefetch as ask;

/// A row of the storage.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Hint {
    first: *const u8,
    bytes: usize,
}

/// Rows that are asked for in the course of some steps.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Hints<'a>(pub(in super::super) &'a [Hint]);

impl Hint {
    pub(in super::super) fn of<T>(row: &[T]) -> Self {
        Self { first: row.as_ptr().cast(), bytes: size_of_val(row) }
    }

    /// The row that lies so many bytes behind it.
    pub(in super::super) fn later(self, bytes: usize) -> Self {
        Self { first: self.first.wrapping_add(bytes), ..self }
    }
}

impl Hints<'_> {
    /// The share of these that belongs to one of several stages.
    #[inline(always)]
    pub(in super::super) fn stage(&self, stage: usize, of: usize) -> Self {
        Self(&self.0[self.0.len() * stage / of..self.0.len() * (stage + 1) / of])
    }

    /// Asks for the share of a step. A hint: it reads and changes nothing, and does nothing on processors that have no
    /// such instruction.
    #[inline(always)]
    pub(in super::super) fn step(&self, step: usize, of: usize) {
        self.stage(step, of).0.iter().for_each(|hint| ask(hint.first, hint.bytes));
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ask(_first: *const u8, _bytes: usize) {}
