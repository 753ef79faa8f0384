//! Forked processes: a child has a copy of every cache, in which locks may stay locked for ever.
//!
//! A handle remembers the process that made it. In a child of that process its verbs raise, and
//! dropping it forgets what it holds.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pyo3::PyResult;

use crate::errors;

/// How many forks lie between this process and the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    // Relaxed: runs while the child has one thread.
    FORKS.fetch_add(1, Relaxed);
}

/// Counts each fork of this process from now on, however it is made.
pub(crate) fn watch() {
    // SAFETY: the handler is a function of this library, which is never unloaded, and only adds to
    // an atomic.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    assert_eq!(refused, 0, "the system has no memory for a fork handler");
}

/// The process that made a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        // Relaxed: written before the threads of a child begin.
        Self(FORKS.load(Relaxed))
    }

    /// How many forks lie before it.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// A handle of the core, until it is released.
pub(crate) struct Held<T> {
    value: Option<T>,
    process: Process,
}

impl<T> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: Process::current() }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.value.is_some()
    }

    #[inline]
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.check()?;
        self.value.as_ref().ok_or_else(errors::released)
    }

    pub(crate) fn get_mut(&mut self) -> PyResult<&mut T> {
        self.check()?;
        self.value.as_mut().ok_or_else(errors::released)
    }

    /// Takes it out; what is done with the handle from then on raises.
    pub(crate) fn take(&mut self) -> PyResult<T> {
        self.check()?;
        self.value.take().ok_or_else(errors::released)
    }

    /// Puts back what was taken out.
    pub(crate) fn put(&mut self, value: T) {
        self.value = Some(value);
    }

    /// Drops what it holds, if it holds anything.
    pub(crate) fn release(&mut self) -> PyResult<()> {
        self.check()?;
        self.value = None;
        Ok(())
    }

    #[inline]
    fn check(&self) -> PyResult<()> {
        if self.process == Process::current() { Ok(()) } else { Err(errors::forked()) }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if self.process != Process::current() {
            std::mem::forget(self.value.take());
        }
    }
}
