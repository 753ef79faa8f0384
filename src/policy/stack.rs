//! A stack that grows and is freed page by page: no operation copies or frees more than one page.

/// Entries of a page.
const PAGE: usize = 512;

#[derive(Debug)]
pub(crate) struct Stack<T> {
    /// All but the last are full.
    pages: Vec<Vec<T>>,
}

impl<T> Default for Stack<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Stack<T> {
    pub(crate) fn len(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.len())
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        match self.pages.last_mut() {
            Some(last) if last.len() < PAGE => last.push(value),
            _ => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(value);
                self.pages.push(page);
            }
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.pages.last_mut()?;
        let value = last.pop();
        // The first page stays.
        if last.is_empty() && self.pages.len() > 1 {
            self.pages.pop();
        }
        value
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_last_comes_first_over_many_pages() {
        let mut stack = Stack::default();
        assert_eq!((stack.pop(), stack.len()), (None, 0));
        (0..3 * PAGE + 1).for_each(|value| stack.push(value));
        assert_eq!((stack.len(), stack.iter().count(), stack.pages.len()), (3 * PAGE + 1, 3 * PAGE + 1, 4));
        assert!((0..3 * PAGE + 1).rev().all(|value| stack.pop() == Some(value)));
        assert_eq!((stack.pop(), stack.len(), stack.pages.len()), (None, 0, 1));
        stack.push(7);
        assert_eq!((stack.pop(), stack.len()), (Some(7), 0));
    }
}
