//! The offsets of all parts of a region, in words from its start. Every module that accesses a part
//! takes its range of words from here. The offsets follow from the layout only: none is read from
//! the shared memory.

use std::ops::Range;

use crate::{
    layout::{Keys, Layout, LayoutError},
    memory::WORD,
    sync::model_size,
    taken,
};

/// Words of the header; the rest of its page is empty.
pub(crate) const HEADER: usize = model_size(512, 0);
/// Processes that may have a region open at one time.
pub(crate) const SLOTS: usize = model_size(64, 3);
/// Words of a process slot: a cache line, so that neighbouring slots do not share one.
pub(crate) const SLOT: usize = 8;
/// Cells of a bucket: a cache line.
pub(crate) const CELLS: usize = model_size(8, 2);
/// Cells per entry.
const CELLS_PER_ENTRY: usize = model_size(4, 1);
/// Words of an entry: a cache line.
pub(crate) const ENTRY: usize = 8;
/// Words reserved for the clock and the epoch of counts: a cache line.
const CLOCK: usize = model_size(8, 2);
/// A block's bytes take a multiple of this many words: a cache line.
const LINE: usize = model_size(8, 1);
/// Namespaces that a region of digest-keyed blocks has room for.
pub(crate) const NAMESPACES: usize = model_size(256, 1);
/// Words of a namespace.
pub(crate) const NAMESPACE: usize = model_size(128, 8);
/// Words of a page.
const PAGE: usize = model_size(512, 1);

/// The offsets and sizes of a region's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) entries: usize,
    pub(crate) buckets: usize,
    token_words: usize,
    payload_words: usize,
    stride: usize,
    namespaces: usize,
    cells: usize,
    records: usize,
    taken: usize,
    tokens: usize,
    payloads: usize,
    words: usize,
}

impl Geometry {
    pub(crate) fn of(layout: &Layout) -> Result<Self, LayoutError> {
        layout.check()?;
        Self::fitting(layout).ok_or_else(|| layout.too_large())
    }

    fn fitting(layout: &Layout) -> Option<Self> {
        let entries = layout.capacity as usize;
        let buckets = (entries * CELLS_PER_ENTRY).div_ceil(CELLS).next_power_of_two();
        let token_words = layout.block_size().div_ceil(WORD / size_of::<u32>());
        let payload_words = usize::try_from(layout.block_bytes.div_ceil(WORD as u64)).ok()?;
        let stride = payload_words.checked_next_multiple_of(LINE)?;
        let namespaces = HEADER + SLOTS * SLOT + CLOCK;
        let cells = namespaces + if layout.keys == Keys::Digests { NAMESPACES * NAMESPACE } else { 0 };
        let records = cells + buckets * CELLS;
        let taken = records + entries * ENTRY;
        let tokens = taken + taken::words(entries);
        let payloads = tokens.checked_add(entries.checked_mul(token_words)?)?.checked_next_multiple_of(PAGE)?;
        let words = payloads.checked_add(entries.checked_mul(stride)?)?;
        words.checked_mul(WORD).filter(|bytes| *bytes <= isize::MAX as usize)?;
        Some(Self {
            entries,
            buckets,
            token_words,
            payload_words,
            stride,
            namespaces,
            cells,
            records,
            taken,
            tokens,
            payloads,
            words,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words * WORD
    }

    /// The offset of a process slot.
    pub(crate) fn slot(&self, slot: usize) -> usize {
        HEADER + slot * SLOT
    }

    /// The offset of the clock.
    pub(crate) fn clock(&self) -> usize {
        HEADER + SLOTS * SLOT
    }

    /// The offset of the epoch in which blocks are counted (`digest::charge`).
    pub(crate) fn epoch(&self) -> usize {
        self.clock() + 1
    }

    /// A process slot with its counters, which regions of digest-keyed blocks use.
    pub(crate) fn slot_line(&self, slot: usize) -> Range<usize> {
        range(HEADER + slot * SLOT, SLOT)
    }

    /// A namespace, which only regions of digest-keyed blocks have.
    pub(crate) fn namespace(&self, namespace: usize) -> Range<usize> {
        range(self.namespaces + namespace * NAMESPACE, NAMESPACE)
    }

    /// The cells of a bucket.
    pub(crate) fn bucket(&self, bucket: usize) -> Range<usize> {
        range(self.cells + bucket * CELLS, CELLS)
    }

    /// The record of an entry.
    pub(crate) fn record(&self, entry: usize) -> Range<usize> {
        range(self.records + entry * ENTRY, ENTRY)
    }

    /// The offset of the tree of taken entries.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// The tokens of an entry.
    pub(crate) fn tokens(&self, entry: usize) -> Range<usize> {
        range(self.tokens + entry * self.token_words, self.token_words)
    }

    /// The bytes of an entry's block.
    pub(crate) fn payload(&self, entry: usize) -> Range<usize> {
        range(self.payloads + entry * self.stride, self.payload_words)
    }

    /// Everything between the header and the bytes of blocks: slots, clock, namespaces, cells,
    /// records, tree of taken entries, tokens.
    pub(crate) fn bookkeeping(&self) -> Range<usize> {
        HEADER..self.payloads
    }
}

fn range(start: usize, len: usize) -> Range<usize> {
    start..start + len
}
