//! A tier that stores blocks in files of a folder. Its threads share one `store`, which keeps the
//! `folder` and its `index` consistent.

mod folder;
mod index;
mod store;

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{
    layout::Layout,
    open::{Limits, OpenError},
    opened::Tier,
    queue::Queue,
    stats::Counters,
    tier::Buffer,
    worker,
};
use folder::Folder;
use store::{FileStore, Files, file_bytes};

/// Settings of a file tier: one folder, one file for each block; the least recently used files are
/// removed at capacity.
///
/// A use of a block also counts as a use of all blocks before it in its sequence, and of one batch
/// the deepest block is evicted first: a block is useless without those before it. Two kinds of
/// blocks are not written, although their puts succeed: a block that would be the first to be
/// evicted, and on a full tier a block without one of the blocks before it. On a disk that is full
/// before the capacity is reached, files are also evicted for new ones. A put that replaces a file
/// of a full tier removes it first.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use radixkv_tiers::{FileTier, Get, Layout, Outcome, Put, RemoteTier};
///
/// # let folder = tempfile::tempdir()?;
/// let layout = Layout::new("llama-3-8b", "bf16", 16, 4096)?;
/// let tier = FileTier::new(folder.path(), layout.clone(), 1 << 30).open::<Vec<u8>>()?;
/// let block = layout.blocks("tenant 7", &[1; 16]).remove(0);
///
/// tier.put_from(vec![Put { block: block.clone(), buffer: vec![9; 4096], time_to_live: None }])?;
/// let mut done = Vec::new();
/// tier.poll(&mut done, Duration::from_secs(10));
///
/// tier.get_into(vec![Get { block, buffer: vec![0; 4096] }])?;
/// tier.poll(&mut done, Duration::from_secs(10));
/// let Outcome::Got(get, Ok(())) = &done[1].outcome else { panic!("{done:?}") };
/// assert_eq!(get.buffer, [9; 4096]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FileTier {
    folder: PathBuf,
    layout: Layout,
    capacity: u64,
    threads: usize,
    direct: bool,
    limits: Limits,
}

impl FileTier {
    /// Settings for a folder, which is created if it does not exist, and for the number of bytes
    /// that its files may take.
    ///
    /// A file counts as its object's bytes, rounded up to a multiple of 4,096; folders are not
    /// counted.
    pub fn new(folder: impl Into<PathBuf>, layout: Layout, capacity: u64) -> Self {
        let limits = Limits::new(Duration::from_secs(10));
        Self { folder: folder.into(), layout, capacity, threads: 4, direct: true, limits }
    }

    /// Sets the number of threads that read and write, from 1 to 256, but not more than the number
    /// of blocks that fit. Default: 4.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: threads.clamp(1, 256), ..self }
    }

    /// Sets whether files bypass the system's page cache if the file system supports it. This is
    /// faster for blocks that are not read again soon, and leaves the memory to the host tier.
    /// Default: true.
    pub fn direct_io(self, direct: bool) -> Self {
        Self { direct, ..self }
    }

    /// Sets how many items may be in flight; at least one. Default: 1,024.
    pub fn max_in_flight(mut self, items: usize) -> Self {
        self.limits.set_max_in_flight(items);
        self
    }

    /// Sets how long a request may take, including waiting; at least 1 ms. Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.set_timeout(timeout);
        self
    }

    /// Opens the folder, indexes its files (one system call for each) and starts the threads.
    ///
    /// Files beyond the capacity are removed, the oldest first.
    ///
    /// # Errors
    ///
    /// [`OpenError`], if the folder has blocks of another layout or format or is already open, or
    /// the capacity is less than one block.
    pub fn open<B: Buffer>(self) -> Result<Tier<B>, OpenError> {
        let object_bytes = self.layout.object_bytes();
        let block = file_bytes(object_bytes);
        let max_files = usize::try_from(self.capacity / block).unwrap_or(usize::MAX);
        if max_files == 0 {
            return Err(OpenError::CapacityBelowBlock { capacity: self.capacity, block });
        }
        let folder = Folder::open(&self.folder, &self.layout)?;
        let found = folder.scan()?;
        let files = Arc::new(Files::new(folder, found, max_files, object_bytes, self.direct));
        let mut tier = Tier::new(self.layout, self.limits.max_in_flight, self.limits.timeout);
        let io = |error| OpenError::io(self.folder.display(), error);
        files.keep_to_capacity(&tier.queue().counters).map_err(io)?;
        // Each writing thread needs room for its own object.
        for number in 0..self.threads.min(max_files) {
            let files = Arc::clone(&files);
            let run = move |queue: &Arc<Queue<B>>, layout: &Arc<Layout>| {
                let mut store = FileStore::new(files, Counts(Arc::clone(queue)));
                worker::work(queue, layout, &mut store);
            };
            tier.spawn(&format!("kv-files-{number}"), run).map_err(io)?;
        }
        Ok(tier)
    }
}

/// Gives a store the counters of a queue.
struct Counts<B>(Arc<Queue<B>>);

impl<B> AsRef<Counters> for Counts<B> {
    fn as_ref(&self) -> &Counters {
        &self.0.counters
    }
}
