//! An opened save of a cache.

use std::{fmt, path::Path, time::SystemTime};

use radixkv::{BlockId, PrefixCache};
use radixkv_tiers::Layout;

use crate::block_bytes::BlockBytes;
use crate::error::{OpenError, RestoreError};
use crate::folder;
use crate::format::entry::{Entry, SavedNamespace, SavedRun, extra_tokens};
use crate::format::header;
use crate::format::record::records;
use crate::format::seal::Sealing;
use crate::format::trailer::Trailer;
use crate::opened::{BlockFile, Opened};
use crate::restore::{Restored, Source, restore};

/// An opened save: its tree is in memory, and the blocks' bytes are read when it is restored.
///
/// It does not change when the folder is saved to again.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_save::{Layout, OpenError, Save, Saved, TreeOnly};
///
/// # let folder = tempfile::tempdir()?;
/// let layout = Layout::new("llama-3-8b", "bf16", 2, 2 << 20)?;
/// assert!(matches!(Saved::open(folder.path(), &layout), Err(OpenError::NothingSaved { .. })));
///
/// let cache = PrefixCache::builder(2, 8).build()?;
/// let (session, space) = (cache.session(), cache.namespace(&["tenant 7"]));
/// drop(session.insert(session.match_prefix(&space, &[1, 2, 3, 4]).lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
/// Save::new(&cache, &layout).to(folder.path(), &mut TreeOnly)?;
///
/// let saved = Saved::open(folder.path(), &layout)?;
/// assert_eq!(saved.blocks(), 2);
/// let restarted = PrefixCache::builder(2, 8).build()?;
/// saved.restore(&restarted, &mut TreeOnly)?;
/// let session = restarted.session();
/// assert_eq!(session.peek(&restarted.namespace(&["tenant 7"]), &[1, 2, 3, 4]), 4);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Saved {
    pub(crate) blocks: BlockFile,
    pub(crate) tree: SavedTree,
    trailer: Trailer,
    block_size: usize,
}

/// The valid content of the records.
#[derive(Debug, Default)]
pub(crate) struct SavedTree {
    pub(crate) namespaces: Vec<SavedNamespace>,
    /// The runs, each after its parent.
    pub(crate) runs: Vec<LinkedRun>,
}

/// A run with its parent, if it has one.
#[derive(Debug)]
pub(crate) struct LinkedRun {
    /// The index of its namespace.
    pub(crate) namespace: usize,
    /// The index of its parent.
    pub(crate) parent: Option<usize>,
    pub(crate) saved: SavedRun,
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saved")
            .field("blocks", &self.blocks())
            .field("saved_at", &self.saved_at())
            .finish_non_exhaustive()
    }
}

impl Saved {
    /// Opens the save in a folder and reads its tree into memory, in proportion to the file's size.
    ///
    /// # Errors
    ///
    /// [`OpenError`], if there is no save, it has another layout, key or version, or its header or
    /// trailer is damaged.
    pub fn open(folder: impl AsRef<Path>, layout: &Layout) -> Result<Self, OpenError> {
        let Opened { blocks, trailer, records } = Opened::open(folder.as_ref(), folder::CACHE, header::CACHE, layout)?;
        let tree = SavedTree::read(&records, blocks.sealing(), layout.block_size());
        Ok(Self { blocks, tree, trailer, block_size: layout.block_size() })
    }

    /// The number of saved blocks.
    pub fn blocks(&self) -> usize {
        self.trailer.count()
    }

    /// The time of the save, by the system's clock.
    pub fn saved_at(&self) -> SystemTime {
        self.trailer.time()
    }

    /// Whether the save has the blocks' bytes, not only the tree.
    pub fn has_bytes(&self) -> bool {
        self.blocks.block_bytes() > 0
    }

    /// Restores the save into a cache, with the bytes of its blocks in `memory`.
    ///
    /// Takes no more blocks than are free when it begins: if fewer are free than were saved, the
    /// most recently used sequences are restored, and the others are counted. Each block is
    /// verified before it is written. The order of the last uses is restored, up to 256 uses of
    /// each run are counted again, and saved priorities are set.
    ///
    /// Other threads may use the cache meanwhile, and find a sequence as soon as it is inserted.
    /// Once a namespace is cleared, nothing more is restored into it: the rest is refused. Restored
    /// blocks are leased until this returns, unless a quota does not allow it. The cache's quotas and other limits apply: set them before.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; the cache is unchanged.
    ///
    /// # Panics
    ///
    /// If `memory` does; blocks that were inserted before stay cached.
    pub fn restore(
        &self,
        cache: &PrefixCache,
        memory: &mut (impl BlockBytes + ?Sized),
    ) -> Result<Restored, RestoreError> {
        if cache.external().is_some() {
            return Err(RestoreError::External);
        }
        self.check(cache, memory.block_bytes())?;
        Ok(restore(self, cache, memory, Source::Cache))
    }

    /// Restores the save into a cache with an external pool, as [`restore`](Self::restore) does,
    /// with block ids from the end of `free`.
    ///
    /// Ids that are not cached in the end are still in `free`, or are returned by
    /// [`ExternalPool::take_evicted`](radixkv::ExternalPool::take_evicted).
    ///
    /// # Errors
    ///
    /// As `restore`.
    ///
    /// # Panics
    ///
    /// As `restore`.
    pub fn restore_external(
        &self,
        cache: &PrefixCache,
        free: &mut Vec<BlockId>,
        memory: &mut (impl BlockBytes + ?Sized),
    ) -> Result<Restored, RestoreError> {
        if cache.external().is_none() {
            return Err(RestoreError::NotExternal);
        }
        self.check(cache, memory.block_bytes())?;
        Ok(restore(self, cache, memory, Source::Engine(free)))
    }

    fn check(&self, cache: &PrefixCache, memory: usize) -> Result<(), RestoreError> {
        let saved = self.blocks.block_bytes();
        if cache.block_size() != self.block_size {
            return Err(RestoreError::BlockSize { cache: cache.block_size(), saved: self.block_size });
        }
        if memory != saved {
            return Err(RestoreError::BlockBytes { memory, saved });
        }
        Ok(())
    }
}

impl SavedTree {
    /// Reads records, which may be any bytes. Invalid runs are left out, with their descendants.
    fn read(bytes: &[u8], sealing: &Sealing, block_size: usize) -> Self {
        let mut tree = Self::default();
        // For each record, the index of its namespace or run.
        let (mut namespaces, mut runs) = (Vec::new(), Vec::new());
        for content in records(bytes, sealing) {
            let (mut namespace, mut run) = (None, None);
            match content.as_deref().and_then(Entry::read) {
                Some(Entry::Namespace(saved)) => {
                    namespace = Some(tree.namespaces.len());
                    tree.namespaces.push(saved);
                }
                Some(Entry::Run(saved)) => run = tree.link(saved, &namespaces, &runs, block_size),
                None => {}
            }
            namespaces.push(namespace);
            runs.push(run);
        }
        tree
    }

    /// Adds a run if it is valid; returns its index.
    fn link(
        &mut self,
        saved: SavedRun,
        namespaces: &[Option<usize>],
        runs: &[Option<usize>],
        block_size: usize,
    ) -> Option<usize> {
        let namespace = (*namespaces.get(saved.namespace)?)?;
        let parent = match saved.parent {
            Some(parent) => Some((*runs.get(parent)?)?),
            None => None,
        };
        let begins_well = match parent.map(|parent| &self.runs[parent]) {
            Some(before) => {
                let end = before.saved.start + before.saved.blocks.len() * block_size;
                before.namespace == namespace && (before.saved.start + 1..=end).contains(&saved.start)
            }
            None => saved.start == 0,
        };
        let extra = extra_tokens(self.namespaces[namespace].keys)?;
        let whole = saved.blocks.len().checked_mul(block_size)?.checked_add(extra)? == saved.tokens.len();
        if !begins_well || !whole || saved.blocks.is_empty() || saved.start % block_size != 0 {
            return None;
        }
        self.runs.push(LinkedRun { namespace, parent, saved });
        Some(self.runs.len() - 1)
    }
}

#[cfg(test)]
mod tests;
