//! A paged array: it grows and is freed page by page, so no operation copies or frees more than one
//! page.

use crate::sync::{Mapped, prefetch, prefetch_to_write};

/// Default entries per page.
const PAGE: usize = 1024;

/// Values by index. A page without values has no memory, except the first page and the page that
/// became empty last.
#[derive(Debug)]
pub(crate) struct Table<T, const ENTRIES: usize = PAGE> {
    pages: Vec<Page<T>>,
    /// One more than the highest index that ever had a value.
    len: usize,
    /// A page that is kept although it may have no values.
    kept: usize,
}

#[derive(Debug)]
struct Page<T> {
    /// `None`, or all entries of the page.
    entries: Option<Mapped<Option<T>>>,
    values: usize,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self { entries: None, values: 0 }
    }
}

impl<T> Page<T> {
    #[inline]
    fn entries(&self) -> &[Option<T>] {
        self.entries.as_deref().unwrap_or_default()
    }
}

impl<T, const ENTRIES: usize> Default for Table<T, ENTRIES> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0, kept: 0 }
    }
}

impl<T: Copy, const ENTRIES: usize> Table<T, ENTRIES> {
    /// One more than the highest index that ever had a value.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.pages.get(index / ENTRIES)?.entries().get(index % ENTRIES)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pages.get_mut(index / ENTRIES)?.entries.as_mut()?.get_mut(index % ENTRIES)?.as_mut()
    }

    /// Prefetches the value at `index`.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        if let Some(entry) = self.pages.get(index / ENTRIES).and_then(|page| page.entries().get(index % ENTRIES)) {
            prefetch(entry);
        }
    }

    /// As [`prefetch`](Self::prefetch), for a value that is about to be set or taken out.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, index: usize) {
        if let Some(entry) = self.pages.get(index / ENTRIES).and_then(|page| page.entries().get(index % ENTRIES)) {
            prefetch_to_write(entry);
        }
    }

    /// Sets the value at `index`; returns the one before.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, value: T) -> Option<T> {
        while self.pages.len() <= index / ENTRIES {
            self.pages.push(Page::default());
        }
        if self.len <= index {
            self.len = index + 1;
        }
        let page = &mut self.pages[index / ENTRIES];
        let entries = page.entries.get_or_insert_with(|| Mapped::filled(None, ENTRIES));
        let before = entries[index % ENTRIES].replace(value);
        page.values += usize::from(before.is_none());
        before
    }

    /// Removes and returns the value at `index`.
    #[inline]
    pub(crate) fn take(&mut self, index: usize) -> Option<T> {
        let page = self.pages.get_mut(index / ENTRIES)?;
        let taken = page.entries.as_mut()?.get_mut(index % ENTRIES)?.take()?;
        page.values -= 1;
        if page.values == 0 {
            self.leave(index / ENTRIES);
        }
        Some(taken)
    }

    /// Keeps the memory of a page that has become empty, and frees that of the empty page kept
    /// before.
    fn leave(&mut self, page: usize) {
        let before = std::mem::replace(&mut self.kept, page);
        if before != page && before > 0 && self.pages[before].values == 0 {
            self.pages[before] = Page::default();
        }
    }

    /// The values, each with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let entries = |(page, of): (usize, &'_ Page<T>)| (page * ENTRIES, of.entries().len());
        let indices = self.pages.iter().enumerate().map(entries).flat_map(|(first, len)| first..first + len);
        indices.filter_map(|index| self.get(index).map(|value| (index, value)))
    }

    /// Frees the last pages, as many as `entries` entries need; returns whether any page is left.
    pub(crate) fn free_last(&mut self, entries: usize) -> bool {
        let keep = self.pages.len().saturating_sub(entries.div_ceil(ENTRIES));
        self.pages.truncate(keep);
        self.len = self.len.min(keep * ENTRIES);
        self.kept = self.kept.min(keep.saturating_sub(1));
        keep > 0
    }

    /// Number of entries that have memory.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.pages.iter().map(|page| page.entries().len()).sum()
    }
}

#[cfg(test)]
mod tests;
