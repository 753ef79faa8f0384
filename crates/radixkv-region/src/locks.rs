//! Locks on single bytes of a region's file. The kernel releases them when a process ends, so they
//! prove its death, whatever PID namespace it was in.
//!
//! They belong to the open file description (`F_OFD_SETLK`): two `Region`s of one process are two
//! owners, and a forked child shares its parent's locks. A mapping keeps its file open, so a lock
//! is released only after all threads of the process have stopped writing to it.
#![allow(unsafe_code)]

use std::fs::File;

/// The result of trying to lock a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Lock {
    /// This open file holds the lock; it may have held it before.
    Held,
    /// Another open file holds the lock.
    Taken,
    /// The file system does not support such locks.
    Unsupported,
}

/// Locks a byte, unless another open file has locked it. Never waits.
#[cfg(target_os = "linux")]
pub(crate) fn try_lock(file: &File, byte: usize) -> Lock {
    match set(file, byte, libc::F_WRLCK) {
        Ok(()) => Lock::Held,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Lock::Taken,
        Err(_) => Lock::Unsupported,
    }
}

/// Unlocks a byte.
#[cfg(target_os = "linux")]
pub(crate) fn unlock(file: &File, byte: usize) {
    let _ = set(file, byte, libc::F_UNLCK);
}

#[cfg(target_os = "linux")]
fn set(file: &File, byte: usize, kind: i32) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;

    // SAFETY: the type has only integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = byte as _;
    lock.l_len = 1;
    loop {
        // SAFETY: the file is open, and the lock outlives the call, which only reads it.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } != -1 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        // A signal: that the lock was not tried does not mean that there are no locks.
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn try_lock(_: &File, _: usize) -> Lock {
    Lock::Unsupported
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn unlock(_: &File, _: usize) {}
