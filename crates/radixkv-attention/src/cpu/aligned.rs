//! Numbers that begin where a cache line does: a vector of them lies in one line.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// Bytes of a line.
const LINE: usize = 64;

/// Some numbers; there is room for more before them.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    numbers: Vec<T>,
    first: usize,
}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Self { numbers: Vec::new(), first: 0 }
    }
}

impl<T: Default> Aligned<T> {
    /// Numbers of a line: room to begin at the next one.
    const BEFORE: usize = LINE / size_of::<T>();

    /// So many numbers, all of them the default one.
    pub(super) fn new(count: usize) -> Result<Self, TryReserveError> {
        let mut aligned = Self::default();
        aligned.numbers.try_reserve_exact(count.saturating_add(Self::BEFORE))?;
        aligned.resize(count);
        Ok(aligned)
    }

    /// Makes it so many numbers, whatever they are. Allocates if there were never as many.
    pub(super) fn resize(&mut self, count: usize) {
        self.numbers.resize_with(Self::BEFORE + count, T::default);
        self.first = self.numbers.as_ptr().align_offset(LINE).min(Self::BEFORE);
        self.numbers.truncate(self.first + count);
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.numbers[self.first..]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.numbers[self.first..]
    }
}
