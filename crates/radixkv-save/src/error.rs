//! Errors of saving, opening and restoring.

use std::{fmt, io};

use crate::format::VERSION;

/// Why a cache was not saved. An older save in the folder is unchanged, except after
/// [`NotSynced`](Self::NotSynced).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The layout has another block size than the cache.
    #[error("blocks differ: {cache} tokens in the cache, {layout} in the layout")]
    BlockSize {
        /// Tokens in a block of the cache.
        cache: usize,
        /// Tokens in a block of the layout.
        layout: usize,
    },
    /// The layout has other block bytes than the engine's memory.
    #[error("blocks differ: {memory} bytes in the memory, {layout} in the layout")]
    BlockBytes {
        /// Bytes of a block in the engine's memory.
        memory: usize,
        /// Bytes of a block in the layout.
        layout: usize,
    },
    /// The layout has other blocks than the host tier.
    #[error("blocks differ: {tier} in the host tier, {layout} in the layout")]
    Tier {
        /// Tokens and bytes of the tier's blocks.
        tier: BlockShape,
        /// Tokens and bytes of the layout's blocks.
        layout: BlockShape,
    },
    /// Another save to the folder is running: wait for it, or use another folder.
    #[error("another save to {place} is running, in this or another process")]
    InUse {
        /// The folder.
        place: String,
    },
    /// The system reported an error: free disk space, or use another folder.
    #[error("{place}: {source}")]
    Io {
        /// A file, or the folder.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The new save replaced the old one, but the system could not sync the folder: it can be
    /// opened, but after a loss of power the folder may have the old save again.
    #[error("{place}: the save is in place, but the folder could not be synced to disk: {source}")]
    NotSynced {
        /// The folder.
        place: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a save could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder has no save: start with an empty cache.
    #[error("nothing is saved in {place}")]
    NothingSaved {
        /// The folder.
        place: String,
    },
    /// The saved blocks have another layout: open another folder, or save again.
    #[error("{place} has blocks of {field} {stored:?}, this layout has {asked:?}: open another folder, or save again")]
    OtherLayout {
        /// The save.
        place: String,
        /// The field that differs.
        field: String,
        /// The save's value.
        stored: String,
        /// The layout's value.
        asked: String,
    },
    /// The save has another format: use the version of this package that wrote it, or save again.
    #[error("{place} has format {version}, this version of radixkv-save reads format {VERSION}")]
    UnknownVersion {
        /// The save.
        place: String,
        /// The version of its format.
        version: u32,
    },
    /// The file is not a save: open another folder.
    #[error("{place} is not a save of radixkv-save")]
    NotASave {
        /// The file.
        place: String,
    },
    /// The save was encrypted with another key: open it with that key.
    #[error("{place} was encrypted with another key")]
    OtherKey {
        /// The save.
        place: String,
    },
    /// The save is damaged in a part that is always needed: start with an empty cache, and save
    /// again.
    #[error("{place} is damaged: its {part} does not match its checksum")]
    Damaged {
        /// The save.
        place: String,
        /// The damaged part.
        part: &'static str,
    },
    /// The system reported an error.
    #[error("{place}: {source}")]
    Io {
        /// The save.
        place: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Tokens and bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockShape {
    /// Tokens per block.
    pub tokens: usize,
    /// Bytes per block.
    pub bytes: usize,
}

impl fmt::Display for BlockShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens and {} bytes", self.tokens, self.bytes)
    }
}

/// Why nothing was restored. The cache, or the tier, is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The cache has another block size than the save.
    #[error("blocks differ: {cache} tokens in the cache, {saved} in the save")]
    BlockSize {
        /// Tokens in a block of the cache.
        cache: usize,
        /// Tokens in a block of the save.
        saved: usize,
    },
    /// The memory has other block bytes than the save; 0 bytes mean only the tree.
    #[error("blocks differ: {memory} bytes in the memory, {saved} in the save")]
    BlockBytes {
        /// Bytes of a block in the engine's memory.
        memory: usize,
        /// Bytes of a block in the save.
        saved: usize,
    },
    /// The tier has other blocks than the save.
    #[error("blocks differ: {tier} in the host tier, {saved} in the save")]
    Tier {
        /// Tokens and bytes of the tier's blocks.
        tier: BlockShape,
        /// Tokens and bytes of the save's blocks.
        saved: BlockShape,
    },
    /// The cache has an external pool: use [`restore_external`](crate::Saved::restore_external).
    #[error("the cache has an external pool: use restore_external, with block ids of the engine")]
    External,
    /// The cache owns its pool: use [`restore`](crate::Saved::restore).
    #[error("the cache owns its pool: use restore, without block ids")]
    NotExternal,
}

impl SaveError {
    pub(crate) fn io(place: impl ToString, source: io::Error) -> Self {
        Self::Io { place: place.to_string(), source }
    }
}
