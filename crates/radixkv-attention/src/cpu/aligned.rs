//! Numbers that begin where a cache line does: a vector of them lies in one line.

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

impl<T: Copy + Default> Aligned<T> {
    /// Makes it so many numbers, whatever they are. Allocates if there were never as many.
    pub(super) fn resize(&mut self, count: usize) {
        let before = LINE / size_of::<T>();
        self.numbers.resize(before + count, T::default());
        self.first = self.numbers.as_ptr().align_offset(LINE).min(before);
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
