//! A table by index that grows and is freed page by page: no operation copies or frees more than one page.

use crate::sync::prefetch;

/// Entries of a page.
const PAGE: usize = 512;

/// Values by index; most indices below the highest have one.
#[derive(Debug)]
pub(crate) struct Table<T> {
    pages: Vec<Box<[Option<T>]>>,
    /// One more than the highest index that ever had a value.
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<T> Table<T> {
    /// One more than the highest index that ever had a value.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.pages.get(index / PAGE)?[index % PAGE].as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pages.get_mut(index / PAGE)?[index % PAGE].as_mut()
    }

    /// Prefetches the value at `index`.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        if let Some(page) = self.pages.get(index / PAGE) {
            prefetch(&raw const page[index % PAGE]);
        }
    }

    /// The value at `index`, or nothing, to be replaced.
    #[inline]
    pub(crate) fn at(&mut self, index: usize) -> &mut Option<T> {
        while self.pages.len() <= index / PAGE {
            self.pages.push((0..PAGE).map(|_| None).collect());
        }
        self.len = self.len.max(index + 1);
        &mut self.pages[index / PAGE][index % PAGE]
    }

    /// Takes the value at `index` out.
    #[inline]
    pub(crate) fn take(&mut self, index: usize) -> Option<T> {
        self.pages.get_mut(index / PAGE)?[index % PAGE].take()
    }

    /// The values, each with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let entries = self.pages.iter().flatten().enumerate();
        entries.filter_map(|(index, entry)| entry.as_ref().map(|value| (index, value)))
    }

    /// Frees the last pages, as many as `entries` entries need; whether any page is left.
    pub(crate) fn free_last(&mut self, entries: usize) -> bool {
        let keep = self.pages.len().saturating_sub(entries.div_ceil(PAGE));
        self.pages.truncate(keep);
        self.len = self.len.min(keep * PAGE);
        keep > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_where_they_were_put_until_their_page_goes() {
        let mut table = Table::default();
        for index in (0..3 * PAGE).step_by(2) {
            *table.at(index) = Some(index);
        }
        assert_eq!((table.len(), table.get(PAGE), table.get(PAGE + 1)), (3 * PAGE - 1, Some(&PAGE), None));
        assert_eq!((table.take(PAGE), table.take(PAGE), table.get(9 * PAGE)), (Some(PAGE), None, None));
        assert_eq!(table.iter().count(), 3 * PAGE / 2 - 1);
        assert!(table.iter().all(|(index, value)| index == *value));
        assert!(table.free_last(1) && table.free_last(PAGE));
        assert_eq!((table.len(), table.get(2)), (PAGE, Some(&2)));
        assert!(!table.free_last(1));
        assert_eq!((table.len(), table.iter().count()), (0, 0));
    }
}
