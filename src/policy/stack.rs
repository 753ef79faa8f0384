//! A stack that grows and is freed page by page, like the table in which it is stored.

use super::table::Table;

/// Values per page. Many, because a stack that shrinks and grows again frees and allocates pages.
const PAGE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Stack<T> {
    values: Table<T, PAGE>,
    len: usize,
}

impl<T> Default for Stack<T> {
    fn default() -> Self {
        Self { values: Table::default(), len: 0 }
    }
}

impl<T: Copy> Stack<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        self.values.set(self.len, value);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        self.values.take(self.len)
    }

    /// Prefetches the place of the next push, for writing.
    pub(crate) fn prefetch_end(&self) {
        self.values.prefetch_to_write(self.len);
    }

    /// Frees the last pages, as many as `values` values need; returns whether any is left. The
    /// stack must no longer be used.
    pub(crate) fn discard(&mut self, values: usize) -> bool {
        self.values.free_last(values)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests;
