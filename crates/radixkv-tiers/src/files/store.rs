//! The store of a file tier: objects as files of one folder.
//!
//! An object is written under a temporary name in `unfinished` and then renamed to its key: a named
//! object is complete, even if the process is killed. Objects are not synced to disk: after a power
//! loss a file may be torn or old, which its length and its checksum reveal.
//!
//! The index and the names in the folder are changed together under one lock. So the index lists
//! exactly the existing files, and they take no more than the capacity. A put is in the index from
//! the moment a thread takes it from the queue: the lock is acquired before the queue's, and no
//! thread acquires it while it holds the queue's. So callers never wait for a disk.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use super::{
    folder::{Folder, Unfinished, no_waiting, remove_file},
    index::{Index, Written},
};
use crate::{
    aligned::{ALIGNMENT, Aligned},
    key::BlockKey,
    object::Miss,
    queue::{Job, Queue},
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
    /// The put that this thread has taken and not carried out yet.
    begun: Option<Begun>,
    counters: C,
}

/// A put in the index, which ends when this is dropped. Must not be dropped under the index's lock.
#[derive(Debug)]
struct Begun {
    files: Arc<Files>,
    key: BlockKey,
    used: Use,
    id: Written,
}

impl Begun {
    fn new(files: &Arc<Files>, index: &mut Index, (key, used): (BlockKey, Use)) -> Self {
        Self { files: Arc::clone(files), key, used, id: index.begin(key, used) }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.files.lock().end(self.id, self.used);
    }
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
        while index.taken() > self.max_files && self.evict_oldest(&mut index, None, counters)? {}
        self.say(&index, counters);
        Ok(())
    }

    /// Evicts the first file in order, for a write with this use. Returns whether there was one.
    fn evict_oldest(&self, index: &mut Index, used: Option<Use>, counters: &Counters) -> io::Result<bool> {
        let Some(oldest) = index.oldest() else { return Ok(false) };
        self.evict(index, oldest, used, counters)?;
        Ok(true)
    }

    /// Evicts a file, for a write with this use.
    fn evict(&self, index: &mut Index, key: BlockKey, used: Option<Use>, counters: &Counters) -> io::Result<()> {
        remove_file(&self.folder.object(key))?;
        if index.evict(key, used) {
            counters.evicted();
        }
        // Not only when the put that needs the room has succeeded.
        self.say(index, counters);
        Ok(())
    }

    /// Reserves room for a file, and returns its modification time. `None` if there is no room, and
    /// either the file would be evicted first itself, or a block before it is missing.
    fn reserve(&self, put: &Begun, counters: &Counters) -> io::Result<Option<SystemTime>> {
        let mut index = self.lock();
        if index.taken() >= self.max_files && index.contains(put.key) {
            // The file that the put replaces gives its room, whatever its rank. Otherwise both
            // exist until the rename.
            self.evict(&mut index, put.key, None, counters)?;
        }
        while index.taken() >= self.max_files {
            let Some(first) = index.first_below(put.key).filter(|_| !index.lacks_beginning(put.used)) else {
                return Ok(None);
            };
            if index.contains(first) {
                self.evict(&mut index, first, Some(put.used), counters)?;
            } else {
                // Another thread is writing it, and will not publish it.
                index.displace(first, put.used);
            }
        }
        index.reserve(put.id);
        Ok(Some(index.time_of(put.used)))
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

    fn write(&self, put: &Begun, object: &Aligned, expires: u64, counters: &Counters) -> io::Result<()> {
        let Some(time) = self.reserve(put, counters)? else {
            counters.evicted();
            return Ok(());
        };
        // Relaxed: the number only has to be unique.
        let number = self.next_unfinished.fetch_add(1, Relaxed);
        let unfinished = Unfinished(self.folder.unfinished().join(number.to_string()));
        self.write_object_or_evict(&unfinished.0, put.used, object, counters)?;
        // The time only matters for the order after the folder is opened again.
        let _ = File::open(&unfinished.0).and_then(|file| file.set_modified(time));
        self.publish(put, &unfinished.0, expires, counters)
    }

    /// Publishes a written object, unless its room was taken meanwhile.
    fn publish(&self, put: &Begun, unfinished: &Path, expires: u64, counters: &Counters) -> io::Result<()> {
        let mut index = self.lock();
        if !index.has_room(put.id) {
            counters.evicted();
            return Ok(());
        }
        self.folder.publish(unfinished, put.key)?;
        index.publish(put.id, expires);
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
            if !self.evict_oldest(&mut self.lock(), Some(used), counters)? {
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
        Self { files, read, written: Written::default(), begun: None, counters }
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
            Step::Store { key, used, object, expires } => {
                // Only a step that was not taken from a queue is not in the index yet.
                let begin = || Begun::new(files, &mut files.lock(), (*key, *used));
                let put = self.begun.take().unwrap_or_else(begin);
                files.write(&put, object, *expires, counters)
            }
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

    /// Takes a job and adds its put to the index at once; `index` says why.
    fn take<B>(&mut self, queue: &Queue<B>) -> Option<Vec<Job<B>>> {
        loop {
            queue.wait_for_work();
            let mut index = self.files.lock();
            if let Some(jobs) = queue.try_take(self.batch()) {
                let put = jobs.iter().flatten().find_map(Use::of_put);
                self.begun = put.map(|put| Begun::new(&self.files, &mut index, put));
                return jobs;
            }
        }
    }

    fn give_up(&mut self) {
        self.begun = None;
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
mod tests;
