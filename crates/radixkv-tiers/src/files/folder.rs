//! The folder of a file tier: its lock, its manifest and its files.
//!
//! ```text
//! FOLDER/manifest          the layout, as text
//! FOLDER/lock              locked while a tier is open; unlocked by the system when the process ends
//! FOLDER/unfinished/N      objects that are being written; removed when the folder is opened
//! FOLDER/objects/ab/cd..   an object: 64 hexadecimal digits of its key
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use crate::{
    key::BlockKey,
    layout::{Layout, MAX_MANIFEST_BYTES},
    open::{self, OpenError},
};

/// A folder that only this process has open.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Opens a folder, creates it if it does not exist, and compares its layout.
    pub(super) fn open(path: &Path, layout: &Layout) -> Result<Self, OpenError> {
        // The process may change its working directory later.
        let path = &std::path::absolute(path).map_err(|error| OpenError::io(path.display(), error))?;
        // Compared before anything is changed.
        let stored = read_manifest(path)?;
        let place = path.display();
        if let Some(stored) = &stored {
            open::compare(&place, layout, stored)?;
        }
        fs::create_dir_all(path).map_err(|error| OpenError::io(&place, error))?;
        let lock = lock(path)?;
        let folder = Self { path: path.to_owned(), lock };
        // Read again under the lock: another process may have created the folder meanwhile.
        match read_manifest(path)? {
            Some(stored) => open::compare(&place, layout, &stored)?,
            None => {
                folder.write_manifest(layout).map_err(|error| OpenError::io(path.join("manifest").display(), error))?
            }
        }
        folder.prepare().map_err(|error| OpenError::io(&place, error))?;
        Ok(folder)
    }

    /// Removes the files that an earlier process left unfinished; files with other names are kept.
    fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(self.unfinished())?;
        for file in fs::read_dir(self.unfinished())? {
            let file = file?;
            if file.file_name().to_str().is_some_and(|name| name.parse::<u64>().is_ok()) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    /// Writes the manifest beside its path and renames it, so that it is complete or not there. It
    /// is synced to disk, because everything else depends on it.
    fn write_manifest(&self, layout: &Layout) -> io::Result<()> {
        let (unfinished, path) = (self.path.join("manifest.new"), self.path.join("manifest"));
        // A file of an earlier process, or a link to a file that is not the tier's.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::create_new(&unfinished)?;
        file.write_all(layout.manifest().as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(&self.path)?.sync_all()
    }

    /// The keys of the objects in the folder, the oldest first. Files with other names are ignored.
    pub(super) fn scan(&self) -> Result<Vec<BlockKey>, OpenError> {
        let mut found: Vec<(SystemTime, BlockKey)> = Vec::new();
        let objects = self.path.join("objects");
        for first in 0..256 {
            let first = format!("{first:02x}");
            let folder = objects.join(&first);
            match fs::read_dir(&folder).and_then(|files| scan_one(&first, files, &mut found)) {
                // A folder is created with its first object.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                scanned => scanned.map_err(|error| OpenError::io(folder.display(), error))?,
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, key)| key).collect())
    }

    pub(super) fn object(&self, key: BlockKey) -> PathBuf {
        let name = key.to_string();
        let (first, rest) = name.split_at(2);
        [self.path.as_os_str(), "objects".as_ref(), first.as_ref(), rest.as_ref()].iter().collect()
    }

    /// Renames a written object to its final name.
    pub(super) fn publish(&self, unfinished: &Path, key: BlockKey) -> io::Result<()> {
        let object = self.object(key);
        match fs::rename(unfinished, &object) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(object.parent().unwrap_or(&self.path))?;
                fs::rename(unfinished, &object)
            }
            renamed => renamed,
        }
    }

    pub(super) fn unfinished(&self) -> PathBuf {
        self.path.join("unfinished")
    }
}

impl Drop for Folder {
    /// Unlocks explicitly. Closing the file is not enough if another thread is forking at this
    /// moment: the child also has the file open until it executes its own program.
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

fn scan_one(first: &str, files: fs::ReadDir, found: &mut Vec<(SystemTime, BlockKey)>) -> io::Result<()> {
    for file in files {
        let file = file?;
        let key = file.file_name().to_str().and_then(|rest| BlockKey::from_hex(&format!("{first}{rest}")));
        if let (Some(key), true) = (key, file.file_type()?.is_file()) {
            found.push((file.metadata()?.modified()?, key));
        }
    }
    Ok(())
}

/// A file that is removed when this is dropped, unless it was renamed.
pub(super) struct Unfinished(pub(super) PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes a file; one that does not exist is no error.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let path_of_lock = path.join("lock");
    let io = |error| OpenError::io(path_of_lock.display(), error);
    let mut options = OpenOptions::new();
    // If the lock is a symbolic link, no file is created at its target.
    let flags = no_waiting() | OFlags::NOFOLLOW.bits() as i32;
    options.create(true).truncate(false).write(true).custom_flags(flags);
    let lock = options.open(&path_of_lock).map_err(io)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { place: path.display().to_string() }),
        Err(error) => Err(io(error.into())),
    }
}

/// Flags for opening a path that may not be a file, such as a pipe, without waiting for its other
/// end. They change nothing for a file.
pub(super) fn no_waiting() -> i32 {
    OFlags::NONBLOCK.bits() as i32
}

/// The manifest, if there is one. Reads only as much of a file as shows that it is too long for a
/// manifest.
fn read_manifest(path: &Path) -> Result<Option<Vec<u8>>, OpenError> {
    let path = path.join("manifest");
    let read = OpenOptions::new().read(true).custom_flags(no_waiting()).open(&path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_MANIFEST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::io(path.display(), error)),
    }
}
