//! Files that hold regions: they come into being whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{fs::FallocateFlags, io::Errno};

use crate::{
    geometry::{Geometry, SLOTS},
    locks::{Lock, try_lock},
    memory::Memory,
    process::ProcessId,
    sync::gauge::{AtomicU64, Relaxed},
};

/// What a file that is being made ends in.
const UNFINISHED: &str = ".new";
/// How long a file may be there before its maker has locked it.
const UNLOCKED: Duration = Duration::from_secs(60);
/// Bytes that are written at once, where memory cannot be reserved.
const ZEROS: usize = 1 << 20;
/// The byte that is locked while a file is made; those before it are for the process slots.
const MAKING: usize = SLOTS;

/// Opens a file.
pub(super) fn open(path: &Path) -> io::Result<(Memory, File)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((Memory::of_file(&file)?, file))
}

/// Makes a file of a region's size, lets it be filled, and then puts it at its path, where none may be.
pub(super) fn create(
    path: &Path,
    own: ProcessId,
    geometry: &Geometry,
    fill: impl Fn(&Memory),
) -> io::Result<(Memory, File)> {
    remove_left_over(path, own);
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let unfinished = Unfinished(beside(path, own)?);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&unfinished.0)?;
    // As long as this process has the file open it is not taken for left over. Where there are no locks, the name says whose it is.
    let _ = try_lock(&file, MAKING);
    reserve(&mut file, geometry.bytes() as u64)?;
    let memory = Memory::of_file(&file)?;
    fill(&memory);
    fs::hard_link(&unfinished.0, path)?;
    Ok((memory, file))
}

/// A file that is removed when it was linked to its own path, or when that failed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
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

/// The name of a file that is being made: `.NAME.PROCESS.NUMBER.new`.
fn beside(path: &Path, own: ProcessId) -> io::Result<PathBuf> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Relaxed);
    let start = start_of_name(path).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(folder(path).join(format!("{start}{:x}.{number}{UNFINISHED}", own.word())))
}

/// Removes what killed processes left of files that they were making for this path.
fn remove_left_over(path: &Path, own: ProcessId) {
    let (Ok(files), Some(start)) = (fs::read_dir(folder(path)), start_of_name(path)) else { return };
    for file in files.flatten() {
        let name = file.file_name();
        let Some(maker) = name.to_str().and_then(|name| maker(name, &start)) else { continue };
        if is_left_over(&file.path(), maker, own) {
            let _ = fs::remove_file(file.path());
        }
    }
}

/// Whether the process that was making a file has ended.
fn is_left_over(path: &Path, maker: ProcessId, own: ProcessId) -> bool {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return false };
    match try_lock(&file, MAKING) {
        Lock::Taken => false,
        // It may be about to lock it: then it is alive.
        Lock::Held => maker.is_dead(own) || is_old(&file),
        Lock::Unsupported => maker.is_dead(own),
    }
}

/// Whether a file was changed last some time ago.
fn is_old(file: &File) -> bool {
    let changed = file.metadata().and_then(|about| about.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > UNLOCKED))
}

/// The process that was making a file of this name.
fn maker(name: &str, start: &str) -> Option<ProcessId> {
    let (process, _number) = name.strip_prefix(start)?.strip_suffix(UNFINISHED)?.split_once('.')?;
    u64::from_str_radix(process, 16).ok().map(ProcessId::from_word)
}

fn start_of_name(path: &Path) -> Option<String> {
    Some(format!(".{}.", path.file_name()?.to_str()?))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
