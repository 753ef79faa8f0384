//! A buffer of numbers that begins at a cache line, so that each vector of them is in one line.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// Bytes of a cache line.
const LINE: usize = 64;

/// A buffer whose first number begins a cache line; numbers before it are unused.
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
    /// Numbers in a line: room to move the start to the next line.
    const BEFORE: usize = LINE / size_of::<T>();

    /// Creates a buffer of `count` default numbers.
    pub(super) fn new(count: usize) -> Result<Self, TryReserveError> {
        let mut aligned = Self::default();
        aligned.numbers.try_reserve_exact(count.saturating_add(Self::BEFORE))?;
        aligned.resize(count);
        Ok(aligned)
    }

    /// Sets the length to `count`; the numbers are unspecified. Allocates if the buffer was never
    /// as long.
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
