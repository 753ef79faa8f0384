//! Locks on single bytes of a region's file, which the kernel lets go when a process ends: what ends with its owner
//! needs no other proof of death, in whatever PID namespace the owner was.
//!
//! They belong to the open file (`F_OFD_SETLK`), so that two `Region`s of one process are two owners, and a child that
//! was forked is its parent's. A mapping keeps its file open: so the lock goes when no thread of a process can write to
//! the mapping any more.
#![allow(unsafe_code)]

use std::fs::File;

/// What became of an attempt to lock a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Lock {
    /// It is held through this open file; it may have been before.
    Held,
    /// Another open file has it.
    Taken,
    /// The file system has no such locks.
    Unsupported,
}

/// Locks a byte, if no other open file has it. Never waits.
#[cfg(target_os = "linux")]
pub(crate) fn try_lock(file: &File, byte: usize) -> Lock {
    match set(file, byte, libc::F_WRLCK) {
        Ok(()) => Lock::Held,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Lock::Taken,
        Err(_) => Lock::Unsupported,
    }
}

/// Lets a byte go.
#[cfg(target_os = "linux")]
pub(crate) fn unlock(file: &File, byte: usize) {
    let _ = set(file, byte, libc::F_UNLCK);
}

#[cfg(target_os = "linux")]
fn set(file: &File, byte: usize, kind: i32) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;

    // SAFETY: integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = byte as _;
    lock.l_len = 1;
    // SAFETY: the file is open, and the lock outlives the call, which only reads it.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn try_lock(_: &File, _: usize) -> Lock {
    Lock::Unsupported
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn unlock(_: &File, _: usize) {}
