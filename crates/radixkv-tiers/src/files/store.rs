//! The store of a file tier: objects as files of one folder.
//!
//! An object is written under a temporary name in `unfinished` and then renamed to its key: a named
//! object is complete, even if the process is killed. Objects are not synced to disk: after a power
//! loss a file may be torn or old, which its length and its checksum reveal.
//!
//! The index and the names in the folder are changed together under one lock. So the index lists
//! exactly the existing files, and they take no more than the capacity.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use super::{
    folder::{Folder, no_waiting},
    index::{Index, Rank, Written},
};
use crate::{
    aligned::{ALIGNMENT, Aligned},
    key::BlockKey,
    object::Miss,
    stats::Counters,
    tier::Failure,
    worker::{self, Reply, Step, Store, Use},
};

/// How many files are evicted for one write that finds the disk full. All files have one size, so
/// evicting more would only make room for other programs.
const MAX_EVICTED_FOR_DISK: usize = 2;

/// The state that all threads of a file tier share.
#[derive(Debug)]
pub(super) struct Files {
    folder: Folder,
    index: Mutex<Index>,
    /// How many objects fit in the capacity.
    max_files: usize,
    object_bytes: usize,
    /// Whether files bypass the system's page cache. Cleared if the file system does not support
    /// that.
    direct: AtomicBool,
    next_unfinished: AtomicU64,
}

/// One thread's access to the files.
#[derive(Debug)]
pub(super) struct FileStore<C> {
    files: Arc<Files>,
    /// One byte larger than an object, so that longer files are detected.
    read: Aligned,
    /// When the last read file was written.
    written: Written,
    counters: C,
}

impl Files {
    /// `found` are the files in the folder, the least recently used first.
    pub(super) fn new(
        folder: Folder,
        found: Vec<BlockKey>,
        max_files: usize,
        object_bytes: usize,
        direct: bool,
    ) -> Self {
        let mut index = Index::default();
        found.into_iter().for_each(|key| index.found(key));
        Self {
            folder,
            index: Mutex::new(index),
            max_files,
            object_bytes,
            direct: AtomicBool::new(direct),
            next_unfinished: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts files until the rest fits in the capacity.
    pub(super) fn keep_to_capacity(&self, counters: &Counters) -> io::Result<()> {
        let mut index = self.lock();
        while index.taken() > self.max_files && self.evict(&mut index, None, None, counters)? {}
        self.say(&index, counters);
        Ok(())
    }

    /// Evicts the first file in order, if its rank is below `before` or `before` is `None`, for a
    /// write with this use. Returns whether it did.
    fn evict(
        &self,
        index: &mut Index,
        before: Option<Rank>,
        used: Option<Use>,
        counters: &Counters,
    ) -> io::Result<bool> {
        let Some((_, oldest)) = index.oldest().filter(|&(rank, _)| before.is_none_or(|new| rank < new)) else {
            return Ok(false);
        };
        remove_file(&self.folder.object(oldest))?;
        index.remove(oldest);
        index.leave_out(oldest, used);
        counters.evicted();
        Ok(true)
    }

    /// Reserves room for a file, and returns its rank and modification time. `None` if there is no
    /// room, and either the file would be evicted first itself, or a block before it is missing.
    fn reserve(&self, key: BlockKey, used: Use, counters: &Counters) -> io::Result<Option<(Rank, SystemTime)>> {
        let mut index = self.lock();
        index.touch_before(used);
        // An existing file is replaced whatever its rank; until the rename both files exist.
        let rank = index.rank(used);
        let before = (!index.contains(key)).then_some(rank);
        while index.taken() + 1 > self.max_files {
            // A file that another thread is writing may be first in order: then it is not
            // published.
            if !index.lacks_beginning(used) && index.displace(rank) {
                continue;
            }
            if index.files() == 0 {
                // Other threads are writing files that take all of the capacity.
                return Err(ErrorKind::StorageFull.into());
            }
            if index.lacks_beginning(used) || !self.evict(&mut index, before, Some(used), counters)? {
                index.leave_out(key, Some(used));
                return Ok(None);
            }
        }
        index.reserve(key, rank);
        Ok(Some((rank, index.time_of(used))))
    }

    fn say(&self, index: &Index, counters: &Counters) {
        counters.held(index.files(), index.files() as u64 * file_bytes(self.object_bytes));
    }

    /// Opens a file and calls `act`, bypassing the page cache if possible; `act` is told whether it
    /// does.
    ///
    /// A file system that does not support the flag reports that when the file is opened, read or
    /// written.
    fn with_file<T>(
        &self,
        options: &mut OpenOptions,
        path: &Path,
        mut act: impl FnMut(&File, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        // Relaxed: only a hint; each thread may detect it itself.
        if self.direct.load(Relaxed) {
            match options.custom_flags(direct_flag() | no_waiting()).open(path).and_then(|file| act(&file, true)) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => self.direct.store(false, Relaxed),
                acted => return acted,
            }
        }
        act(&options.custom_flags(no_waiting()).open(path)?, false)
    }

    /// Reads up to the length of `out`. Returns the number of bytes read.
    fn read(&self, key: BlockKey, out: &mut Aligned) -> io::Result<usize> {
        self.with_file(OpenOptions::new().read(true), &self.folder.object(key), |file, direct| {
            let mut length = 0;
            while length < out.padded().len() {
                match file.read_at(&mut out.padded_mut()[length..], length as u64) {
                    Ok(0) => break,
                    Ok(bytes) => length += bytes,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                // Direct reads continue only at multiples of the alignment; another length means
                // the end of the file.
                if direct && length % ALIGNMENT != 0 {
                    break;
                }
            }
            Ok(length.min(out.bytes().len()))
        })
    }

    fn write(&self, key: BlockKey, used: Use, object: &Aligned, expires: u64, counters: &Counters) -> io::Result<()> {
        let Some((rank, time)) = self.reserve(key, used, counters)? else {
            counters.evicted();
            return Ok(());
        };
        // Relaxed: the number only has to be unique.
        let number = self.next_unfinished.fetch_add(1, Relaxed);
        let unfinished = Unfinished(self.folder.unfinished().join(number.to_string()));
        let written = self.write_object_or_evict(&unfinished.0, used, object, counters);
        let mut index = self.lock();
        let has_room = index.end_reservation(rank);
        let published = written.and_then(|()| {
            if has_room {
                // The time only matters for the order after the folder is opened again.
                let _ = File::open(&unfinished.0).and_then(|file| file.set_modified(time));
                self.folder.publish(&unfinished.0, key)?;
            }
            Ok(has_room)
        });
        // Otherwise a file of an earlier write is kept, if there is one.
        if !matches!(published, Ok(true)) && !index.contains(key) {
            index.leave_out(key, Some(used));
        }
        if !published? {
            counters.evicted();
            return Ok(());
        }
        index.insert(key, used, expires);
        self.say(&index, counters);
        Ok(())
    }

    /// Writes an object. If the disk is full before the tier's capacity is reached, evicts another
    /// file for it.
    fn write_object_or_evict(&self, path: &Path, used: Use, object: &Aligned, counters: &Counters) -> io::Result<()> {
        let mut written = self.write_object(path, object);
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // Another program removed the folder `unfinished`. If it removed the tier's folder as
            // well, this fails.
            match fs::create_dir(self.folder.unfinished()) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => written = self.write_object(path, object),
            }
        }
        for _ in 0..MAX_EVICTED_FOR_DISK {
            if !written.as_ref().is_err_and(|error| failure(error) == Failure::NoRoom) {
                break;
            }
            remove_file(path)?;
            if !self.evict(&mut self.lock(), None, Some(used), counters)? {
                break;
            }
            written = self.write_object(path, object);
        }
        written
    }

    fn write_object(&self, path: &Path, object: &Aligned) -> io::Result<()> {
        self.with_file(OpenOptions::new().write(true).create(true).truncate(true), path, |file, direct| {
            if direct {
                // Direct writes need lengths that are multiples of the alignment.
                file.write_all_at(object.padded(), 0)?;
                file.set_len(self.object_bytes as u64)
            } else {
                file.write_all_at(object.bytes(), 0)
            }
        })
    }

    /// Removes a file, unless it was written again since: the newer file is not the damaged one.
    fn discard(&self, key: BlockKey, written: Written, counters: &Counters) -> io::Result<()> {
        let index = self.lock();
        if index.written(key) == Some(written) { self.remove_in(index, key, counters) } else { Ok(()) }
    }

    fn remove(&self, key: BlockKey, counters: &Counters) -> io::Result<()> {
        self.remove_in(self.lock(), key, counters)
    }

    fn remove_in(&self, mut index: MutexGuard<'_, Index>, key: BlockKey, counters: &Counters) -> io::Result<()> {
        remove_file(&self.folder.object(key))?;
        index.remove(key);
        self.say(&index, counters);
        Ok(())
    }
}

impl<C: AsRef<Counters>> FileStore<C> {
    pub(super) fn new(files: Arc<Files>, counters: C) -> Self {
        let read = Aligned::new(files.object_bytes + 1);
        Self { files, read, written: Written::default(), counters }
    }

    fn carry_out_one(&mut self, step: &Step) -> Result<Reply<'_>, Failure> {
        let (files, counters) = (&self.files, self.counters.as_ref());
        match step {
            Step::Contains(key) => {
                let expires = files.lock().expires(*key);
                return Ok(Reply::Is(expires.is_some_and(|expires| !worker::is_over(expires))));
            }
            Step::Fetch(block, used) => {
                let key = block.key();
                let Some(written) = files.lock().touch(key, *used) else { return Ok(Reply::Is(false)) };
                self.written = written;
                match files.read(key, &mut self.read) {
                    Ok(length) => return Ok(Reply::Object(Cow::Borrowed(&self.read.bytes()[..length]))),
                    // Another program removed it.
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        let discarded = files.discard(key, written, counters);
                        return discarded.map(|()| Reply::Is(false)).map_err(|error| failure(&error));
                    }
                    Err(error) => Err(error),
                }
            }
            Step::Store { key, used, object, expires } => files.write(*key, *used, object, *expires, counters),
            Step::Remove(key) => files.remove(*key, counters),
        }
        .map(|()| Reply::Done)
        .map_err(|error| failure(&error))
    }
}

impl<C: AsRef<Counters>> Store for FileStore<C> {
    /// One at a time, so that other threads can take the next ones.
    fn batch(&self) -> usize {
        1
    }

    fn carry_out(&mut self, steps: &[Step], reply: &mut dyn FnMut(usize, Reply<'_>)) {
        for (index, step) in steps.iter().enumerate() {
            reply(index, self.carry_out_one(step).unwrap_or_else(Reply::Failed));
        }
    }

    fn discard(&mut self, key: BlockKey, _why: Miss) {
        let _ = self.files.discard(key, self.written, self.counters.as_ref());
    }
}

/// A file that is removed when this is dropped, unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Failure::NoRoom,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Failure::Denied,
        kind => Failure::Io(kind),
    }
}

/// The bytes that a file takes on a disk, which allocates whole blocks.
pub(super) fn file_bytes(object_bytes: usize) -> u64 {
    object_bytes.next_multiple_of(ALIGNMENT) as u64
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn direct_flag() -> i32 {
    rustix::fs::OFlags::DIRECT.bits() as i32
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn direct_flag() -> i32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    /// Another thread writes the file again between a read and the removal of the block that was
    /// read.
    #[test]
    fn a_file_that_was_written_again_is_not_discarded() {
        let (path, layout) = (tempfile::tempdir().unwrap(), Layout::new("m", "bf16", 1, 8).unwrap());
        let folder = Folder::open(path.path(), &layout).unwrap();
        let files = Arc::new(Files::new(folder, Vec::new(), 4, layout.object_bytes(), false));
        let counters = Arc::new(Counters::default());
        let [mut reader, mut writer] = [(); 2].map(|()| FileStore::new(Arc::clone(&files), Arc::clone(&counters)));
        let (block, used) =
            (layout.blocks("", &[0]).remove(0), Use { batch: 0, number: 0, parent: None, before: None });
        let key = block.key();
        let write = || Step::Store { key, used, object: Aligned::new(layout.object_bytes()), expires: 0 };
        let read = || Step::Fetch(block.clone(), used);
        let mut nothing = |_: usize, _: Reply<'_>| {};
        writer.carry_out(&[write()], &mut nothing);
        reader.carry_out(&[read()], &mut nothing);
        writer.carry_out(&[write()], &mut nothing);
        reader.discard(key, Miss::Expired);
        assert!(files.lock().contains(key) && files.folder.object(key).exists());
        reader.carry_out(&[read()], &mut nothing);
        reader.discard(key, Miss::Expired);
        assert!(!files.lock().contains(key) && !files.folder.object(key).exists());
    }

    /// The blocks of a sequence that was evicted are put again, by two threads.
    #[test]
    fn a_block_is_written_while_the_block_before_it_is_being_written() {
        let layout = Layout::new("m", "bf16", 1, 8).unwrap();
        let [one, other] = ["one", "other"].map(|name| layout.blocks(name, &[0, 1]));
        let used =
            |batch, block: &crate::Block| Use { batch, number: block.number(), parent: block.parent(), before: None };
        let store = |batch, block: &crate::Block| {
            let object = Aligned::new(layout.object_bytes());
            [Step::Store { key: block.key(), used: used(batch, block), object, expires: 0 }]
        };
        for is_begun in [true, false] {
            let path = tempfile::tempdir().unwrap();
            let folder = Folder::open(path.path(), &layout).unwrap();
            let files = Arc::new(Files::new(folder, Vec::new(), 2, layout.object_bytes(), false));
            let counters = Arc::new(Counters::default());
            let mut writer = FileStore::new(Arc::clone(&files), Arc::clone(&counters));
            let mut nothing = |_: usize, _: Reply<'_>| {};
            for (batch, block) in [(0, &one[0]), (0, &one[1]), (1, &other[0]), (1, &other[1])] {
                writer.carry_out(&store(batch, block), &mut nothing);
            }
            assert!(one.iter().all(|block| !files.lock().contains(block.key())));
            let begun = is_begun.then(|| files.reserve(one[0].key(), used(2, &one[0]), &counters).unwrap().unwrap());
            writer.carry_out(&store(2, &one[1]), &mut nothing);
            assert!(files.lock().contains(one[1].key()), "the first block is begun: {is_begun}");
            if let Some((rank, _)) = begun {
                assert!(files.lock().end_reservation(rank));
            }
            writer.carry_out(&store(2, &one[0]), &mut nothing);
            assert!(one.iter().all(|block| files.lock().contains(block.key())));
        }
    }
}
