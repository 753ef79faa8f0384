//! Statistics of a tier.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{object::Miss, tier::Failure};

/// Statistics of a tier since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Requested blocks that were read.
    pub hits: u64,
    /// Requested blocks that were not found, by reason. Failed requests are in `errors`.
    pub misses: Misses,
    /// Blocks that were stored.
    pub stored_blocks: u64,
    /// Keys that the caller removed.
    pub removed_blocks: u64,
    /// Blocks that the tier removed to make room for others.
    pub evicted_blocks: u64,
    /// Bytes of objects that were read.
    pub read_bytes: u64,
    /// Bytes of objects that were stored.
    pub written_bytes: u64,
    /// Bytes that the store holds; only `FileTier` and `RegionTier` count them.
    pub held_bytes: u64,
    /// Blocks that the store holds; only `FileTier` and `RegionTier` count them.
    pub held_blocks: u64,
    /// Items in flight: accepted, with completions not yet polled.
    pub in_flight: u64,
    /// Batches that were refused because too many items were in flight.
    pub refused_batches: u64,
    /// Items that failed, by kind.
    pub errors: Errors,
}

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident, $cells:ident, $($(#[$field_doc:meta])* $field:ident,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct $name { $($(#[$field_doc])* pub $field: u64,)* }

        impl $name {
            /// The sum of all kinds.
            pub fn total(&self) -> u64 {
                [$(self.$field,)*].iter().sum()
            }
        }

        #[derive(Debug, Default)]
        struct $cells { $($field: AtomicU64,)* }

        impl $cells {
            fn read(&self) -> $name {
                // Relaxed: counts.
                $name { $($field: self.$field.load(Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Misses by reason; [`Miss`] describes each.
    Misses, MissCells,
    /// [`Miss::Absent`].
    absent,
    /// [`Miss::Expired`].
    expired,
    /// [`Miss::Torn`].
    torn,
    /// [`Miss::Undecryptable`].
    undecryptable,
    /// [`Miss::WrongChecksum`].
    wrong_checksum,
    /// [`Miss::NotAnObject`].
    not_an_object,
    /// [`Miss::UnknownVersion`].
    unknown_version,
    /// [`Miss::WrongLayout`].
    wrong_layout,
    /// [`Miss::WrongKey`].
    wrong_key,
    /// [`Miss::WrongTokens`].
    wrong_tokens,
}

counts! {
    /// Failures by kind; [`Failure`] describes each.
    Errors, ErrorCells,
    /// [`Failure::TimedOut`].
    timed_out,
    /// [`Failure::Unreachable`].
    unreachable,
    /// [`Failure::NoRoom`].
    no_room,
    /// [`Failure::Denied`].
    denied,
    /// [`Failure::Protocol`].
    protocol,
    /// [`Failure::OtherLayout`].
    other_layout,
    /// [`Failure::Buffer`].
    buffer,
    /// [`Failure::KeyExhausted`].
    key_exhausted,
    /// [`Failure::Panicked`].
    panicked,
    /// [`Failure::Io`].
    io,
}

/// The counters, to which all threads of a tier add.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    misses: MissCells,
    errors: ErrorCells,
    stored: AtomicU64,
    removed: AtomicU64,
    evicted: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    held_bytes: AtomicU64,
    held_blocks: AtomicU64,
    refused: AtomicU64,
}

// Relaxed, in all of these: no thread makes a decision with these counts.
impl Counters {
    pub(crate) fn hit(&self, bytes: usize) {
        self.hits.fetch_add(1, Relaxed);
        self.read.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn stored(&self, bytes: usize) {
        self.stored.fetch_add(1, Relaxed);
        self.written.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn removed(&self) {
        self.removed.fetch_add(1, Relaxed);
    }

    pub(crate) fn evicted(&self) {
        self.evicted.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn held(&self, blocks: usize, bytes: u64) {
        self.held_blocks.store(blocks as u64, Relaxed);
        self.held_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn missed(&self, miss: Miss) {
        let cells = &self.misses;
        let cell = match miss {
            Miss::Absent => &cells.absent,
            Miss::Expired => &cells.expired,
            Miss::Torn { .. } => &cells.torn,
            Miss::Undecryptable => &cells.undecryptable,
            Miss::WrongChecksum => &cells.wrong_checksum,
            Miss::NotAnObject => &cells.not_an_object,
            Miss::UnknownVersion { .. } => &cells.unknown_version,
            Miss::WrongLayout => &cells.wrong_layout,
            Miss::WrongKey => &cells.wrong_key,
            Miss::WrongTokens => &cells.wrong_tokens,
        };
        cell.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, failure: Failure) {
        let cells = &self.errors;
        let cell = match failure {
            Failure::TimedOut => &cells.timed_out,
            Failure::Unreachable => &cells.unreachable,
            Failure::NoRoom => &cells.no_room,
            Failure::Denied => &cells.denied,
            Failure::Protocol => &cells.protocol,
            Failure::OtherLayout => &cells.other_layout,
            Failure::Buffer => &cells.buffer,
            Failure::KeyExhausted => &cells.key_exhausted,
            Failure::Panicked => &cells.panicked,
            Failure::Io(_) => &cells.io,
        };
        cell.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self, in_flight: usize) -> Stats {
        Stats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.read(),
            stored_blocks: self.stored.load(Relaxed),
            removed_blocks: self.removed.load(Relaxed),
            evicted_blocks: self.evicted.load(Relaxed),
            read_bytes: self.read.load(Relaxed),
            written_bytes: self.written.load(Relaxed),
            held_bytes: self.held_bytes.load(Relaxed),
            held_blocks: self.held_blocks.load(Relaxed),
            in_flight: in_flight as u64,
            refused_batches: self.refused.load(Relaxed),
            errors: self.errors.read(),
        }
    }
}
