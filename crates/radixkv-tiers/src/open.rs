//! The errors of opening a tier, and the settings that all tiers have.

use std::{io, time::Duration};

use crate::layout::{Difference, FORMAT, Layout, MAX_MANIFEST_BYTES};

/// Why a tier could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store holds blocks of another layout: open another folder or prefix, or empty this one.
    #[error(
        "{place} holds blocks of {field} {stored:?}, this layout has {asked:?}: open another place, or empty this one"
    )]
    OtherLayout {
        /// The store.
        place: String,
        /// What differs.
        field: &'static str,
        /// The store's value.
        stored: String,
        /// The layout's value.
        asked: String,
    },
    /// The store has another format: open another folder or prefix, or use the version of this
    /// package that wrote it.
    #[error("{place} has format {version}, this version of radixkv-tiers reads format {FORMAT}")]
    UnknownVersion {
        /// The store.
        place: String,
        /// The version of its format.
        version: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// The store's manifest cannot be read: another program wrote it, or it is damaged.
    #[error("{place} is not a store of radixkv-tiers: its manifest cannot be read")]
    NotAStore {
        /// The store.
        place: String,
    },
    /// The capacity is smaller than one block.
    #[error("capacity of {capacity} bytes requested, one block needs {block}")]
    CapacityBelowBlock {
        /// Bytes allowed.
        capacity: u64,
        /// Bytes that one stored block takes.
        block: u64,
    },
    /// The folder is already open: close the other tier, or open another folder.
    #[error("{place} is already open, in this or another process")]
    InUse {
        /// The store.
        place: String,
    },
    /// The region could not be opened: another layout, a file that is not a region, or no free
    /// process slot.
    #[cfg(feature = "region")]
    #[error("{place}: {source}")]
    Region {
        /// The region's file.
        place: String,
        /// The region's error.
        source: radixkv_region::OpenError,
    },
    /// The system or the server reported an error.
    #[error("{place}: {source}")]
    Io {
        /// The store, or a file of it.
        place: String,
        /// The system's or the server's error.
        source: io::Error,
    },
}

/// The settings that all tiers have.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) max_in_flight: usize,
    pub(crate) timeout: Duration,
}

impl Limits {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { max_in_flight: 1024, timeout }
    }

    pub(crate) fn set_max_in_flight(&mut self, items: usize) {
        self.max_in_flight = items.max(1);
    }

    /// At most a year: `Instant` cannot represent arbitrarily late times.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout.clamp(Duration::from_millis(1), Duration::from_secs(365 * 86_400));
    }
}

impl OpenError {
    pub(crate) fn io(place: impl ToString, source: io::Error) -> Self {
        Self::Io { place: place.to_string(), source }
    }
}

/// Compares a store's manifest with a layout.
pub(crate) fn compare(place: &dyn ToString, layout: &Layout, manifest: &[u8]) -> Result<(), OpenError> {
    let place = || place.to_string();
    if manifest.len() > MAX_MANIFEST_BYTES {
        return Err(OpenError::NotAStore { place: place() });
    }
    layout.compare(manifest).map_err(|difference| match difference {
        Difference::NotAManifest => OpenError::NotAStore { place: place() },
        Difference::Version(version) => OpenError::UnknownVersion { place: place(), version, known: FORMAT },
        Difference::Field { field, stored, asked } => OpenError::OtherLayout { place: place(), field, stored, asked },
    })
}
