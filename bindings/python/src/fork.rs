//! Makes handles safe in forked processes. A forked child has a copy of every cache, but locks in
//! it may be locked forever.
//!
//! Each handle of the core is in a [`Held`] or a [`Handle`](crate::handle::Handle), which record
//! the process that created it. In a child of that process, the methods of the handle raise
//! ForkError, and dropping it leaks the value.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pyo3::PyResult;

use crate::errors;

/// The number of forks between this process and the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    // Relaxed: runs while the child has only one thread.
    FORKS.fetch_add(1, Relaxed);
}

/// Counts all later forks of this process, including those outside Python.
pub(crate) fn watch() {
    // SAFETY: the handler is a function of this library, which is never unloaded, and only adds to
    // an atomic.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    assert_eq!(refused, 0, "the system has no memory for a fork handler");
}

/// The process that created a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        // Relaxed: the child writes it before it starts threads.
        Self(FORKS.load(Relaxed))
    }

    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Raises ForkError in a forked child of this process.
    #[inline]
    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_current() { Ok(()) } else { Err(errors::forked()) }
    }

    /// The number of forks between this process and the one that loaded the module.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// A value of the core that only the process that created it can use. It needs no lock: only its
/// owner, which has `&mut`, releases it.
pub(crate) struct Held<T> {
    value: Option<T>,
    process: Process,
}

impl<T> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: Process::current() }
    }

    #[inline]
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.process.check()?;
        self.value.as_ref().ok_or_else(errors::released)
    }

    pub(crate) fn get_mut(&mut self) -> PyResult<&mut T> {
        self.process.check()?;
        self.value.as_mut().ok_or_else(errors::released)
    }

    /// The value for the garbage collector, which no method may refuse; `None` if it was taken.
    pub(crate) fn peek(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Same as `peek`; `None` in a forked child, where locks in the value may be locked forever.
    pub(crate) fn peek_here(&self) -> Option<&T> {
        if self.process.is_current() { self.peek() } else { None }
    }

    /// Takes the value out for a drop, which must not raise; `None` in a forked child.
    pub(crate) fn take_to_drop(&mut self) -> Option<T> {
        if self.process.is_current() { self.value.take() } else { None }
    }

    /// Drops the value, if it was not taken or released.
    pub(crate) fn release(&mut self) -> PyResult<()> {
        self.process.check()?;
        self.value = None;
        Ok(())
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.value.take());
        }
    }
}
