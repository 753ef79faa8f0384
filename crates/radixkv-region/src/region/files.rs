//! Files of regions: a file appears at its path only when it is complete, and only one process
//! makes it.
//!
//! A region is made in a file beside its path, `.NAME.new`, which is then hard-linked to the path.
//! Its maker locks that file. So other processes wait instead of reserving as much memory again,
//! and detect the file of a killed maker.

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

/// Bytes per write, if the file system cannot reserve memory.
const ZEROS: usize = 1 << 20;
/// Bytes of the smallest part that is reserved at once.
const PAGE: u64 = 4096;
/// The byte that is locked while a file is made; the bytes before it are for the process slots.
const MAKING: usize = SLOTS;
/// How long a process waits for another one that is making the same region.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long it waits between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// Opens the file of a region and maps it.
pub(super) fn open(path: &Path) -> io::Result<(Memory, File)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((Memory::of_file(&file)?, file))
}

/// Makes a file of a region's size, calls `fill`, and then links the file to its path. Fails if a
/// file is already there.
pub(super) fn create(path: &Path, geometry: &Geometry, fill: impl Fn(&Memory)) -> io::Result<(Memory, File)> {
    let (mut file, unfinished) = begin(path)?;
    reserve(&mut file, geometry.bytes() as u64)?;
    let memory = Memory::of_file(&file)?;
    fill(&memory);
    fs::hard_link(&unfinished.0, path)?;
    Ok((memory, file))
}

/// The name of a file that only this process fills. The name is removed once the file is linked to
/// the region's path, or linking failed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Waits until this process may make the file of a region, and creates it.
fn begin(path: &Path) -> io::Result<(File, Unfinished)> {
    let name = beside(path)?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&name) {
            Ok(file) => {
                // Another process may have removed the file as left over before it was locked.
                if try_lock(&file, MAKING) != Lock::Taken && is_at(&file, &name) {
                    let unfinished = Unfinished(name);
                    // Another process may have made the region since the look above: its memory is
                    // not reserved once more.
                    if path.try_exists()? {
                        return Err(io::ErrorKind::AlreadyExists.into());
                    }
                    return Ok((file, unfinished));
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

/// Removes the file that a killed maker left beside a region's path. False if there is none, or if a
/// region is being made.
pub(super) fn clean(path: &Path) -> io::Result<bool> {
    let name = beside(path)?;
    Ok(name.try_exists()? && remove_left_over(&name)?)
}

/// Removes a file that its maker, now dead, did not finish. False if it is being made.
///
/// Only its name is removed: if the maker had already linked the file, it may be a region that
/// others have open.
fn remove_left_over(name: &Path) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    if try_lock(&file, MAKING) != Lock::Held {
        return Ok(false);
    }
    // The lock holder may remove the name only if it still names the locked file.
    if is_at(&file, name) {
        fs::remove_file(name)?;
    }
    Ok(true)
}

/// Whether a name still refers to an open file.
fn is_at(file: &File, name: &Path) -> bool {
    let id = |about: fs::Metadata| (about.dev(), about.ino());
    matches!((file.metadata().map(id), fs::metadata(name).map(id)), (Ok(one), Ok(other)) if one == other)
}

/// Reserves the memory of a file in the file system: a later write to the mapping could not report
/// a lack of memory.
fn reserve(file: &mut File, bytes: u64) -> io::Result<()> {
    let reserve = |from, part| rustix::fs::fallocate(&*file, FallocateFlags::empty(), from, part);
    match reserve_in_parts(bytes, reserve) {
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

/// Reserves all bytes at once, or in smaller parts if signals interrupt that: in memory, a file
/// system undoes what a signal interrupted, so a large part may never end beside a timer.
fn reserve_in_parts(bytes: u64, reserve: impl Fn(u64, u64) -> Result<(), Errno>) -> Result<(), Errno> {
    let (mut done, mut part) = (0, bytes);
    while done < bytes {
        part = part.min(bytes - done);
        match reserve(done, part) {
            Ok(()) => done += part,
            Err(Errno::INTR) => part = (part / 2).max(PAGE.min(bytes - done)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The path of the file in which a region is made.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".new");
    Ok(path.with_file_name(name))
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A timer sends signals so often that only small parts end between two of them.
    // Holds: RG5.
    #[test]
    fn signals_delay_the_reservation_of_memory_and_do_not_fail_it() {
        for bytes in [1, PAGE, (1 << 30) + 4095] {
            let (reserved, calls) = (Cell::new(0), Cell::new(0_u32));
            let reserve = |from, part| {
                calls.set(calls.get() + 1);
                assert!(from == reserved.get() && part > 0 && from + part <= bytes);
                if part > 1 << 24 || calls.get() % 3 == 0 {
                    return Err(Errno::INTR);
                }
                reserved.set(from + part);
                Ok(())
            };
            assert_eq!(reserve_in_parts(bytes, reserve), Ok(()));
            assert_eq!(reserved.get(), bytes);
        }
        let refused = |_, _| Err(Errno::NOSPC);
        assert_eq!(reserve_in_parts(1 << 40, refused), Err(Errno::NOSPC));
    }
}
