//! Why a cache is not saved, a save not opened, or not restored.

use std::{fmt, io};

use crate::format::VERSION;

/// Why a cache was not saved. An older save in the folder is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// Describe the cache's blocks by another layout.
    #[error("the cache has blocks of {cache} tokens, the layout of {layout}")]
    BlockSize {
        /// Tokens of the cache's blocks.
        cache: usize,
        /// Tokens of the layout's.
        layout: usize,
    },
    /// Describe the blocks' bytes by another layout.
    #[error("the memory has blocks of {memory} bytes, the layout of {layout}")]
    BlockBytes {
        /// What the memory says.
        memory: usize,
        /// Bytes of the layout's blocks.
        layout: usize,
    },
    /// Describe the tier's blocks by another layout.
    #[error("the host tier has blocks of {tier}, the layout of {layout}")]
    Tier {
        /// Tokens and bytes of the tier's blocks.
        tier: BlockShape,
        /// Those of the layout's.
        layout: BlockShape,
    },
    /// Wait for the other save, or take another folder.
    #[error("{place} is being saved to already, here or in another process")]
    InUse {
        /// The folder.
        place: String,
    },
    /// The system refuses: make room, or take another folder.
    #[error("{place}: {source}")]
    Io {
        /// A file, or the folder.
        place: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Why a save is not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Start cold: nothing was saved there.
    #[error("nothing is saved in {place}")]
    NothingSaved {
        /// The folder.
        place: String,
    },
    /// Open another folder, or save anew: these blocks have another meaning.
    #[error("{place} has blocks of {field} {stored:?}, this layout has {asked:?}: open another folder, or save anew")]
    OtherLayout {
        /// The save.
        place: String,
        /// What differs.
        field: String,
        /// The save's value.
        stored: String,
        /// The layout's value.
        asked: String,
    },
    /// Use the version of this package that wrote it, or save anew.
    #[error("{place} has format {version}, this version of radixkv-save reads format {VERSION}")]
    UnknownVersion {
        /// The save.
        place: String,
        /// The version of its format.
        version: u32,
    },
    /// Open another folder: this is another program's file.
    #[error("{place} is no save of radixkv-save")]
    NotASave {
        /// The file.
        place: String,
    },
    /// Start cold, and save anew: without this part nothing of the save can be trusted.
    #[error("{place} is damaged: its {part} does not fit its checksum")]
    Damaged {
        /// The save.
        place: String,
        /// Which part.
        part: &'static str,
    },
    /// The system refuses.
    #[error("{place}: {source}")]
    Io {
        /// The save.
        place: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Tokens and bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockShape {
    /// Its tokens.
    pub tokens: usize,
    /// Its bytes.
    pub bytes: usize,
}

impl fmt::Display for BlockShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens and {} bytes", self.tokens, self.bytes)
    }
}

/// Why nothing was restored. The cache, or the tier, is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Build the cache with the save's block size.
    #[error("the cache has blocks of {cache} tokens, the save of {saved}")]
    BlockSize {
        /// Tokens of the cache's blocks.
        cache: usize,
        /// Tokens of the save's.
        saved: usize,
    },
    /// Give memory with such blocks; 0 bytes stand for the tree alone.
    #[error("the memory has blocks of {memory} bytes, the save of {saved}")]
    BlockBytes {
        /// What the memory says.
        memory: usize,
        /// Bytes of the save's blocks.
        saved: usize,
    },
    /// Build the tier with the save's blocks.
    #[error("the host tier has blocks of {tier}, the save of {saved}")]
    Tier {
        /// Tokens and bytes of the tier's blocks.
        tier: BlockShape,
        /// Those of the save's.
        saved: BlockShape,
    },
    /// Use [`restore_external`](crate::Saved::restore_external): the engine owns this cache's pool.
    #[error("the engine owns the cache's pool: give ids of its blocks")]
    External,
    /// Use [`restore`](crate::Saved::restore): the cache owns its pool.
    #[error("the cache owns its pool and takes no ids of the engine's")]
    NotExternal,
}

impl SaveError {
    pub(crate) fn io(place: impl ToString, source: io::Error) -> Self {
        Self::Io { place: place.to_string(), source }
    }
}
