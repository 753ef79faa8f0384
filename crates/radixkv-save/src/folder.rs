//! The folder of a save. A new save replaces the old one completely, or not at all.
//!
//! ```text
//! FOLDER/save      the last completed save of a cache
//! FOLDER/save.new  a save that is being written; removed if it fails, or by the next save
//! FOLDER/host      the last completed save of a host tier; host.new as above
//! FOLDER/lock      locked while a save is written; unlocked by the system when the process ends
//! ```
//!
//! The new file is synced to disk before it gets its name, and the folder afterwards: if a process
//! is killed or a machine loses power, the folder has the old save or the new one. A process that
//! is reading the old save can continue.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use crate::error::SaveError;

/// A folder that only this process may save to, and the file that it is writing.
#[derive(Debug)]
pub(crate) struct Unfinished {
    folder: PathBuf,
    name: &'static str,
    pub(crate) file: File,
    lock: File,
    is_published: bool,
}

/// The name of a cache's save.
pub(crate) const CACHE: &str = "save";
/// The name of a host tier's save.
pub(crate) const HOST: &str = "host";

impl Unfinished {
    /// Locks the folder, which it creates if it does not exist, and creates an empty file in it for
    /// the save of this name.
    pub(crate) fn new(folder: &Path, name: &'static str) -> Result<Self, SaveError> {
        let io = |error| SaveError::io(folder.display(), error);
        // The process may change its working directory meanwhile.
        let folder = std::path::absolute(folder).map_err(io)?;
        make(&folder).map_err(io)?;
        let lock = lock(&folder)?;
        let path = unfinished_in(&folder, name);
        let file = create(&path).map_err(|error| SaveError::io(path.display(), error))?;
        Ok(Self { folder, name, file, lock, is_published: false })
    }

    /// Syncs the file to disk, and gives it its name. The old save is replaced only if this returns
    /// `Ok` or [`SaveError::NotSynced`].
    pub(crate) fn publish(mut self) -> Result<(), SaveError> {
        let failed = |error| Self::error(&self.folder, self.name, error);
        self.file.sync_all().map_err(failed)?;
        // Opened first: once the file has its name, only the sync can fail.
        let folder = File::open(&self.folder).map_err(failed)?;
        fs::rename(unfinished_in(&self.folder, self.name), self.folder.join(self.name)).map_err(failed)?;
        self.is_published = true;
        let place = self.folder.display().to_string();
        folder.sync_all().map_err(|source| SaveError::NotSynced { place, source })
    }

    /// Converts an error of writing the file.
    pub(crate) fn error(folder: &Path, name: &str, error: io::Error) -> SaveError {
        SaveError::io(unfinished_in(folder, name).display(), error)
    }
}

impl Drop for Unfinished {
    /// Unlocks explicitly, because closing the file may not: a process that was forked at this
    /// moment also has the file open, until it executes its own program.
    fn drop(&mut self) {
        if !self.is_published {
            let _ = fs::remove_file(unfinished_in(&self.folder, self.name));
        }
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Creates a new file at a path. Removes the file of a failed save, or a link to another file,
/// first.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

/// Options to open something other than a regular file, such as a pipe, without waiting for its
/// other end. They change nothing for a regular file.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

/// Creates a folder if it does not exist, and syncs its name to disk.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn unfinished_in(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.new"))
}

fn lock(folder: &Path) -> Result<File, SaveError> {
    let path = folder.join("lock");
    let io = |error| SaveError::io(path.display(), error);
    // If the path is a link, no file is created at its target.
    let flags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits() as i32;
    let lock = options().custom_flags(flags).create(true).truncate(false).write(true).open(&path).map_err(io)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(SaveError::InUse { place: folder.display().to_string() }),
        Err(error) => Err(io(error.into())),
    }
}
