//! Files that hold regions: they come into being whole, and one at a time.
//!
//! A region is made in a file beside its path, `.NAME.new`, and then linked to its path. Its maker has a lock on that
//! file: other processes wait for it instead of taking as much memory again, and what a killed one left is seen to be
//! left.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{fs::FallocateFlags, io::Errno};

use crate::{
    geometry::{Geometry, SLOTS},
    locks::{Lock, try_lock},
    memory::Memory,
};

/// Bytes that are written at once, where memory cannot be reserved.
const ZEROS: usize = 1 << 20;
/// The byte that is locked while a file is made; those before it are for the process slots.
const MAKING: usize = SLOTS;
/// How long a process waits for another one that makes the same region.
const PATIENCE: Duration = Duration::from_secs(300);
/// And between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Opens a file.
pub(super) fn open(path: &Path) -> io::Result<(Memory, File)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((Memory::of_file(&file)?, file))
}

/// Makes a file of a region's size, lets it be filled, and then puts it at its path, where none may be.
pub(super) fn create(path: &Path, geometry: &Geometry, fill: impl Fn(&Memory)) -> io::Result<(Memory, File)> {
    let (mut file, unfinished) = begin(path)?;
    reserve(&mut file, geometry.bytes() as u64)?;
    let memory = Memory::of_file(&file)?;
    fill(&memory);
    fs::hard_link(&unfinished.0, path)?;
    Ok((memory, file))
}

/// A file that this process alone fills. Its name goes when it was linked to the region's path, or when that failed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Takes its turn to make the file of a region.
fn begin(path: &Path) -> io::Result<(File, Unfinished)> {
    let name = beside(path)?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&name) {
            Ok(file) => {
                // Between making and locking it, another process may have taken it for left over.
                if try_lock(&file, MAKING) != Lock::Taken && is_at(&file, &name) {
                    return Ok((file, Unfinished(name)));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !remove_left_over(&name)? {
                    thread::sleep(PAUSE);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Removes a file that its maker, now dead, did not finish. False if it is being made.
///
/// Its name alone goes: the file may be a region that others have open, if the maker had linked it already.
fn remove_left_over(name: &Path) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    if try_lock(&file, MAKING) != Lock::Held {
        return Ok(false);
    }
    // The process with the lock may remove the name, as long as it is the name of the file that is locked.
    if is_at(&file, name) {
        fs::remove_file(name)?;
    }
    Ok(true)
}

/// Whether a name is still that of an open file.
fn is_at(file: &File, name: &Path) -> bool {
    let id = |about: fs::Metadata| (about.dev(), about.ino());
    matches!((file.metadata().map(id), fs::metadata(name).map(id)), (Ok(one), Ok(other)) if one == other)
}

/// Takes the memory of a file from the file system: later there may be none, and a write to a mapping cannot fail.
fn reserve(file: &mut File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; ZEROS];
            let mut left = bytes;
            while left > 0 {
                let part = left.min(ZEROS as u64);
                file.write_all(&zeros[..part as usize])?;
                left -= part;
            }
            Ok(())
        }
        other => Ok(other?),
    }
}

/// The name under which a file is made.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".new");
    Ok(path.with_file_name(name))
}
