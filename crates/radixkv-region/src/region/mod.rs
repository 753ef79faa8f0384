//! An open region: opening, closing, and the state that its methods share.

mod files;
#[cfg(all(test, not(radixkv_loom)))]
mod killed;
mod read;
mod run;
mod space;
mod write;

use std::{fs::File, io, os::unix::fs::MetadataExt, path::Path};

pub use read::{Get, ReadError, Source};
pub use run::PutRun;
pub(crate) use space::age;
pub(crate) use write::expiry;
pub use write::{Put, PutError, Reservation, Reserve};

use crate::{
    counts::{Counts, Stats},
    entry::Entry,
    geometry::{Geometry, SLOTS},
    header::{self, OpenError},
    index::Index,
    layout::Layout,
    memory::Memory,
    process::{self, ProcessId},
    slots::Slots,
    state::Kind,
    sync::{AtomicU64, Mutex, Relaxed, gauge},
    taken::Taken,
};

/// A region of KV blocks that the processes of one host share, in memory that each of them maps.
///
/// | verb | progress | writes to the region |
/// |---|---|---|
/// | [`get_into`](Self::get_into), [`contains`](Self::contains), [`locate`](Self::locate) | wait-free: checks two buckets, one copy | when the block was used |
/// | [`put`](Self::put), [`reserve`](Self::reserve) | lock-free; checks at most 2,048 entries, and twice as many if it has to [`recover`](Self::recover) | one entry |
/// | [`remove`](Self::remove) | wait-free | one entry |
/// | [`recover`](Self::recover) | lock-free; checks all entries twice for each dead process | entries of dead processes |
/// | [`stats`](Self::stats), [`clear`](Self::clear), [`clear_namespace`](Self::clear_namespace) | wait-free; checks all entries | the cleared entries |
///
/// No verb waits for another process, alive or dead. Reads never allocate; writes allocate only
/// when they recover. All verbs can be called from any thread. A child that was forked while the
/// region was open can read blocks; to put or remove blocks it has to open the region itself.
#[derive(Debug)]
pub struct Region {
    pub(crate) memory: Memory,
    /// The file, if the region is in one: a lock on it shows that this process lives.
    file: Option<File>,
    pub(crate) geometry: Geometry,
    pub(crate) layout: Layout,
    counts: Counts,
    /// The process that opened the region.
    pub(crate) own: ProcessId,
    /// Its slot.
    pub(crate) slot: usize,
    /// The current boot of the machine: blocks written in an earlier one are not read.
    boot: u64,
    /// Held by the thread that recovers; the others do not wait for it.
    recovering: Mutex<()>,
}

impl Region {
    /// Creates a region in a new file, readable only by this user.
    ///
    /// All its memory is taken from the file system at once, which takes time in proportion to its
    /// size. If the process is killed meanwhile, nothing is at `path`, but a file `.NAME.new` is
    /// left beside it. The next call removes that file (remove it by hand if the file system has no
    /// locks). If another process is creating the same region, this one waits for it, for at most
    /// five minutes.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; if the file exists already, [`OpenError::Io`] of the kind `AlreadyExists`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use radixkv_region::{Layout, Region};
    ///
    /// # let folder = std::env::temp_dir();
    /// # let path = folder.join(format!("radixkv-region-doc-create-{}", std::process::id()));
    /// let layout = Layout::new(16, 64 << 10, 8).model("Qwen/Qwen3-8B").dtype("bf16");
    /// let region = Region::create(&path, &layout)?;
    /// // Another model's process is refused, with both names.
    /// let refused = Region::open(&path, &layout.clone().model("Llama")).unwrap_err();
    /// assert!(refused.to_string().starts_with(r#"model is "Qwen/Qwen3-8B" in the region, "Llama" was requested"#));
    /// # std::fs::remove_file(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(path: impl AsRef<Path>, layout: &Layout) -> Result<Self, OpenError> {
        let geometry = Geometry::of(layout)?;
        let fill = |memory: &Memory| header::write(memory, layout, &geometry);
        let (memory, file) = files::create(path.as_ref(), &geometry, fill)?;
        Self::join(memory, Some(file), layout, geometry, ProcessId::own())
    }

    /// Opens a region in a file.
    ///
    /// First recovers the entries of killed processes.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: impl AsRef<Path>, layout: &Layout) -> Result<Self, OpenError> {
        let geometry = Geometry::of(layout)?;
        let (memory, file) = files::open(path.as_ref())?;
        header::check(&memory, layout, &geometry)?;
        Self::join(memory, Some(file), layout, geometry, ProcessId::own())
    }

    /// Opens the region in a file, or creates one if the file does not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open_or_create(path: impl AsRef<Path>, layout: &Layout) -> Result<Self, OpenError> {
        let path = path.as_ref();
        match Self::open(path, layout) {
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        match Self::create(path, layout) {
            // Another process created it first.
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => Self::open(path, layout),
            other => other,
        }
    }

    /// Creates a region in memory that the caller mapped, and opens it. The old content of the
    /// memory is lost.
    ///
    /// No process may have a region open in that memory: one process formats it, the others
    /// [`attach`](Self::attach) afterwards.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use radixkv_region::{Layout, Memory, Region};
    ///
    /// let layout = Layout::new(16, 64 << 10, 8);
    /// let region = Region::format(Memory::anonymous(layout.region_bytes()?)?, &layout)?;
    /// assert_eq!(region.stats().capacity, 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn format(memory: Memory, layout: &Layout) -> Result<Self, OpenError> {
        let geometry = Geometry::of(layout)?;
        if memory.len() < geometry.bytes() {
            return Err(OpenError::TooShort { expected: geometry.bytes(), got: memory.len() });
        }
        header::erase(&memory);
        for word in memory.words(geometry.bookkeeping()) {
            // Relaxed: E6.
            word.store(0, Relaxed);
        }
        header::write(&memory, layout, &geometry);
        Self::join(memory, None, layout, geometry, ProcessId::own())
    }

    /// Opens the region in memory that the caller mapped.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn attach(memory: Memory, layout: &Layout) -> Result<Self, OpenError> {
        let geometry = Geometry::of(layout)?;
        header::check(&memory, layout, &geometry)?;
        Self::join(memory, None, layout, geometry, ProcessId::own())
    }

    /// Opens a region in the memory of a model, which needs no header. If `is_dead`, the other
    /// processes of the model consider this one dead.
    #[cfg(radixkv_loom)]
    pub fn model(memory: &Memory, layout: &Layout, is_dead: bool) -> Self {
        let own = ProcessId::of_model(is_dead);
        Self::join(memory.clone(), None, layout, Geometry::of(layout).expect("a layout"), own).expect("a slot")
    }

    /// Takes a process slot in a region whose header was checked, or that has just been made.
    pub(crate) fn join(
        memory: Memory,
        file: Option<File>,
        layout: &Layout,
        geometry: Geometry,
        own: ProcessId,
    ) -> Result<Self, OpenError> {
        let (counts, boot) = (Counts::default(), if cfg!(radixkv_loom) { 0 } else { process::boot() });
        // `SLOTS` means no slot: recovery, which comes first, needs none.
        let (layout, recovering) = (layout.clone(), Mutex::new(()));
        let mut region = Self { memory, file, geometry, layout, counts, own, slot: SLOTS, boot, recovering };
        region.recover();
        region.slot = region.slots().take(own).ok_or(OpenError::TooManyProcesses { slots: SLOTS })?;
        region.take_back(region.slot);
        region.show_free();
        Ok(region)
    }

    /// Opens the region in a file without becoming one of its processes: it takes no slot, recovers
    /// nothing, and none of its verbs writes. `expected` gives the layout that the header must have,
    /// from the one that it has.
    pub(crate) fn observe(path: &Path, expected: impl FnOnce(Layout) -> Layout) -> Result<Self, OpenError> {
        let (memory, file) = files::open(path)?;
        let layout = expected(header::layout(&memory)?);
        let geometry = Geometry::of(&layout)?;
        header::check(&memory, &layout, &geometry)?;
        let (counts, boot, recovering) = (Counts::default(), process::boot(), Mutex::new(()));
        // `NONE` is no process: every write is refused, as in a forked child.
        let (own, slot) = (ProcessId::NONE, SLOTS);
        Ok(Self { memory, file: Some(file), geometry, layout, counts, own, slot, boot, recovering })
    }

    /// Removes the file that a killed maker left beside a region's path. Returns whether it did.
    pub(crate) fn remove_unfinished(path: &Path) -> io::Result<bool> {
        files::clean(path)
    }

    /// The layout in the file's header. Does not check the rest of the region.
    pub(crate) fn layout_of(path: &Path) -> Result<Layout, OpenError> {
        header::layout(&files::open(path)?.0)
    }

    /// The layout that all processes of the region share.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The statistics of the region's content, and of the calls through this `Region`. The block
    /// counts are exact if no process puts or removes blocks meanwhile.
    pub fn stats(&self) -> Stats {
        let (mut blocks, mut in_flight) = (0, 0);
        for entry in 0..self.geometry.entries {
            match self.entry(entry).look().kind() {
                Kind::Ready => blocks += 1,
                Kind::Writing => in_flight += 1,
                Kind::Free | Kind::Unknown => {}
            }
        }
        Stats {
            capacity: self.geometry.entries,
            blocks,
            bytes: blocks * self.layout.block_bytes(),
            in_flight,
            processes: self.slots().in_use(),
            ..self.counts.stats()
        }
    }

    /// Whether the calling process is the one that opened the region, not a fork of it.
    fn is_own(&self) -> bool {
        std::process::id() == self.own.pid()
    }

    /// The pid of the process that opened the region.
    pub(crate) fn opener(&self) -> u32 {
        self.own.pid()
    }

    /// The user who owns the open file, if the region is in one.
    pub(crate) fn file_owner(&self) -> io::Result<Option<u32>> {
        let about = self.file.as_ref().map(File::metadata).transpose()?;
        Ok(about.map(|about| about.uid()))
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    pub(crate) fn boot(&self) -> u64 {
        self.boot
    }

    pub(crate) fn count_stored(&self, blocks: u64) {
        self.counts.stored.fetch_add(blocks, gauge::Relaxed);
    }

    pub(crate) fn entry(&self, number: usize) -> Entry<'_> {
        Entry::of(number, &self.memory, &self.geometry)
    }

    pub(crate) fn index(&self) -> Index<'_> {
        Index::of(&self.memory, &self.geometry)
    }

    pub(super) fn taken(&self) -> Taken<'_> {
        Taken::of(&self.memory, &self.geometry)
    }

    fn slots(&self) -> Slots<'_> {
        Slots::of(&self.memory, &self.geometry, self.file.as_ref())
    }

    /// The clock: how many entries were checked to make room so far, except for quotas.
    pub(crate) fn clock(&self) -> &AtomicU64 {
        let at = self.geometry.clock();
        &self.memory.words(at..at + 1)[0]
    }

    /// The epoch in which blocks are counted.
    pub(crate) fn epoch(&self) -> &AtomicU64 {
        let at = self.geometry.epoch();
        &self.memory.words(at..at + 1)[0]
    }
}

impl Drop for Region {
    /// Frees the process slot, after giving back the entries of forgotten reservations.
    fn drop(&mut self) {
        if self.slot < SLOTS && self.is_own() {
            self.take_back(self.slot);
            self.slots().free(self.slot);
        }
    }
}

/// Counts one more.
fn count(counter: &gauge::AtomicU64) {
    counter.fetch_add(1, gauge::Relaxed);
}
