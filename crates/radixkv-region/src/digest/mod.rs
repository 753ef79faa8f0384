//! Digest-keyed blocks: blocks whose keys are digests that the caller computed. Their region has
//! namespaces after the clock, and labels instead of tokens. Entries follow the same protocol as
//! those of token-keyed blocks.

mod blocks;
mod census;
mod charge;
mod count;
mod key;
#[cfg(all(test, not(radixkv_loom)))]
mod killed;
mod label;
mod namespace;
mod recent;
mod room;
mod sealed;
mod sum;
mod table;

use std::{io, path::Path, sync::Arc};

pub use blocks::{BatchError, DigestBlocks, DigestPut, Presence};
pub use census::{Census, DigestObserver, NamespaceCensus, ProcessCensus, Verified};
pub(crate) use charge::Kept;
pub use key::{DigestKey, KeyError};
pub use namespace::{Namespace, NamespaceError};
pub use room::{DigestRoom, DigestSource};

use crate::{
    counts::Stats,
    header::OpenError,
    layout::{Keys, Layout, LayoutError},
    memory::Memory,
    region::Region,
    sync::gauge,
};

/// The sizes of a region of digest-keyed blocks, on which all its processes must agree.
///
/// ```
/// use radixkv_region::DigestLayout;
///
/// let layout = DigestLayout::new(64 << 10, 4096);
/// assert!(layout.region_bytes()? > 4096 * (64 << 10));
/// # Ok::<_, radixkv_region::LayoutError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestLayout(Layout);

impl DigestLayout {
    /// Creates a layout with room for `capacity` blocks, each of up to `entry_bytes`.
    pub fn new(entry_bytes: usize, capacity: u32) -> Self {
        Self::of(Layout::new(0, entry_bytes, capacity))
    }

    /// The layout with labels, which have one size, in place of tokens.
    fn of(layout: Layout) -> Self {
        // A token takes half a word.
        Self(Layout { keys: Keys::Digests, block_size: 2 * label::LABEL as u32, ..layout })
    }

    /// Bytes of the largest block.
    pub fn entry_bytes(&self) -> usize {
        self.0.block_bytes()
    }

    /// Blocks of the region.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Bytes that a region of this layout takes.
    ///
    /// # Errors
    ///
    /// [`LayoutError`], if no region can have these sizes.
    pub fn region_bytes(&self) -> Result<usize, LayoutError> {
        self.0.region_bytes()
    }
}

/// A region of digest-keyed blocks, which the processes of one host share.
///
/// It is a [`Region`] whose keys are hashes of prefixes, for engines that have these instead of
/// tokens. Blocks are read and written through the namespaces that [`namespace`](Self::namespace)
/// opens.
///
/// No verb waits for another process, alive, stopped or dead. Unlike a [`Region`]'s verbs, a
/// namespace's never look for killed processes. Only [`recover`](Self::recover) does, which
/// [`open`](Self::open) calls, and which a background thread should call regularly.
///
/// ```
/// use std::sync::Arc;
/// use radixkv_region::{DigestKey, DigestLayout, DigestPut, DigestRegion, Memory, Namespace, Presence};
///
/// let layout = DigestLayout::new(4096, 64);
/// let region = Arc::new(DigestRegion::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?);
/// let blocks = region.namespace(&Namespace::new("an engine", 32, 4096).model("Qwen/Qwen3-8B"))?;
/// let keys = [DigestKey::new(&[1; 32])?, DigestKey::new(&[2; 32])?];
/// assert_eq!(blocks.put_from(&keys[..1], &[&[7; 4096]], None)?, [DigestPut::Stored]);
/// assert_eq!(blocks.exists(&keys)?, [Presence::Stored, Presence::Absent]);
/// let mut found = [0; 4096];
/// assert!(blocks.get_into(&keys[..1], &mut [&mut found])?[0].is_hit());
/// assert_eq!(found, [7; 4096]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DigestRegion {
    pub(crate) region: Region,
    /// The maximum number of this process's blocks; 0 means no limit.
    quota: gauge::AtomicU64,
}

impl DigestRegion {
    /// Creates a region in a new file, as [`Region::create`] does.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn create(path: impl AsRef<Path>, layout: &DigestLayout) -> Result<Self, OpenError> {
        Region::create(path, &layout.0).map(Self::over)
    }

    /// Opens a region in a file, and recovers the entries of killed processes.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; a region of other sizes, of another version or with token keys is refused,
    /// and the error names both values.
    pub fn open(path: impl AsRef<Path>, layout: &DigestLayout) -> Result<Self, OpenError> {
        Region::open(path, &layout.0).map(Self::over)
    }

    /// Opens a region in a file, with the sizes in its header.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let layout = DigestLayout::of(Region::layout_of(path.as_ref())?);
        Self::open(path, &layout)
    }

    /// Opens the region in a file, or creates one if the file does not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open_or_create(path: impl AsRef<Path>, layout: &DigestLayout) -> Result<Self, OpenError> {
        Region::open_or_create(path, &layout.0).map(Self::over)
    }

    /// Removes the file `.NAME.new` beside `path`, which a process leaves that is killed while it
    /// creates a region there. Returns whether there was such a file.
    ///
    /// The file holds the memory of the whole region. If the region is already at `path`, the file is
    /// its second name, and only that name is removed. A file that a living process is making stays.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn remove_unfinished(path: impl AsRef<Path>) -> io::Result<bool> {
        Region::remove_unfinished(path.as_ref())
    }

    /// Creates a region in memory that the caller mapped, as [`Region::format`] does.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn format(memory: Memory, layout: &DigestLayout) -> Result<Self, OpenError> {
        Region::format(memory, &layout.0).map(Self::over)
    }

    /// Opens the region in memory that the caller mapped.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn attach(memory: Memory, layout: &DigestLayout) -> Result<Self, OpenError> {
        Region::attach(memory, &layout.0).map(Self::over)
    }

    /// Opens a region in the memory of a model, which needs no header, and its only namespace, which
    /// is not in the table.
    #[cfg(radixkv_loom)]
    pub fn model(memory: &Memory, layout: &DigestLayout) -> DigestBlocks {
        let region = Self::over(Region::model(memory, &layout.0, false));
        DigestBlocks::new(Arc::new(region), 1, &Namespace::new("a model", 32, 8))
    }

    /// Counts all blocks again, as a process does that recovers another one.
    #[cfg(radixkv_loom)]
    pub fn recount(&self) {
        self.region.recount();
    }

    /// The counted blocks of the model's namespace and of this process.
    #[cfg(radixkv_loom)]
    pub fn counted(&self) -> [i64; 2] {
        let of_namespace = self.region.count_of_namespace(1, 0).expect("a namespace");
        [of_namespace.blocks(), self.region.count_of_process(self.region.slot(), 0, 0).blocks()]
    }

    fn over(region: Region) -> Self {
        region.account(region.slot()).begin();
        region.begin_count();
        Self { region, quota: gauge::AtomicU64::new(0) }
    }

    /// The user who owns the region's file and so can read and change its blocks; `None` if the
    /// region is in memory that the caller mapped. It is the owner of the file that is open, whatever
    /// file is at the path now.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn file_owner(&self) -> io::Result<Option<u32>> {
        self.region.file_owner()
    }

    /// The sizes of the region.
    pub fn layout(&self) -> DigestLayout {
        DigestLayout(self.region.layout().clone())
    }

    /// Opens a namespace, and adds it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`]; if the namespace of that name has another model, dtype, arrangement,
    /// shard, size or hash, the error names both values.
    pub fn namespace(self: &Arc<Self>, namespace: &Namespace) -> Result<DigestBlocks, NamespaceError> {
        // A census names encrypted namespaces too: they are not opened without their key.
        self.open_namespace(&Namespace { is_sealed: false, ..namespace.clone() })
    }

    /// Checks whether [`namespace`](Self::namespace) would open a namespace, or, if `is_encrypted`,
    /// whether `sealed_namespace` would. Adds nothing, so the caller can first open everything else
    /// that may fail: a region never forgets a namespace.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`]. Another process may add namespaces after the check.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use radixkv_region::{DigestLayout, DigestRegion, Memory, Namespace};
    /// # let layout = DigestLayout::new(64, 8);
    /// # let region = Arc::new(DigestRegion::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?);
    /// let namespace = Namespace::new("tenant 7", 32, 64);
    /// region.check_namespace(&namespace, false)?;
    /// assert!(region.census().namespaces.is_empty());
    /// region.namespace(&namespace)?;
    /// assert!(region.check_namespace(&namespace.dtype("fp8"), false).is_err());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_namespace(&self, namespace: &Namespace, is_encrypted: bool) -> Result<(), NamespaceError> {
        namespace.check(self.region.layout().block_bytes())?;
        self.region.table().check(&Namespace { is_sealed: is_encrypted, ..namespace.clone() })
    }

    /// Opens a namespace, encrypted or not as it says itself.
    fn open_namespace(self: &Arc<Self>, namespace: &Namespace) -> Result<DigestBlocks, NamespaceError> {
        namespace.check(self.region.layout().block_bytes())?;
        Ok(DigestBlocks::new(Arc::clone(self), self.region.table().open(namespace)?, namespace))
    }

    /// Opens a namespace whose blocks are encrypted with a key, and adds it if it does not exist.
    /// The region never contains plaintext.
    ///
    /// For processes with another key its blocks are misses
    /// ([`Miss::Undecryptable`](crate::Miss::Undecryptable)). A namespace that was first opened
    /// without a key is refused, and vice versa. The region counts how many blocks of the namespace
    /// all processes have encrypted; the count is lost with the region.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use radixkv_region::{DigestKey, DigestLayout, DigestRegion, Get, Memory, Miss, Namespace, SealKey};
    /// # let layout = DigestLayout::new(64, 8);
    /// # let region = Arc::new(DigestRegion::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?);
    /// let (namespace, keys) = (Namespace::new("tenant 7", 32, 64), [DigestKey::new(&[1; 32])?]);
    /// let blocks = region.sealed_namespace(&namespace, SealKey::new(&[7; 32]))?;
    /// blocks.put_from(&keys, &[&[5; 64]], None)?;
    /// let mut found = [0; 64];
    /// assert!(blocks.get_into(&keys, &mut [&mut found])?[0].is_hit());
    /// let others = region.sealed_namespace(&namespace, SealKey::new(&[8; 32]))?;
    /// assert_eq!(others.get_into(&keys, &mut [&mut found])?, [Get::Miss(Miss::Undecryptable)]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "encryption")]
    pub fn sealed_namespace(
        self: &Arc<Self>,
        namespace: &Namespace,
        key: crate::SealKey,
    ) -> Result<DigestBlocks, NamespaceError> {
        let namespace = Namespace { is_sealed: true, ..namespace.clone() };
        let sealer = sealed::Sealer::new(key, &namespace);
        Ok(self.open_namespace(&namespace)?.sealed_by(sealer))
    }

    /// Limits how many blocks this process may have; 0 means no limit, which is the default. A put
    /// beyond the limit evicts a block that this process stored.
    pub fn set_process_quota(&self, blocks: u64) {
        self.quota.store(blocks, gauge::Relaxed);
    }

    /// Recovers the entries of killed processes. Returns how many.
    ///
    /// Lock-free. It checks all entries three times for each dead process, so a background thread
    /// should call it.
    pub fn recover(&self) -> usize {
        self.region.recover()
    }

    /// The statistics of the region's content, and of the calls through this `DigestRegion`. Checks
    /// all entries.
    pub fn stats(&self) -> Stats {
        self.region.stats()
    }

    /// Removes all blocks of all namespaces. Returns how many.
    pub fn clear(&self) -> usize {
        self.region.clear()
    }
}
