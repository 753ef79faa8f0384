//! Runs long calls on threads of their own, so that Ctrl-C ends them.

use std::io::{self, Read};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::internal;

/// Maximum time between two checks for signals.
const INTERVAL: Duration = Duration::from_millis(50);

/// Whether a call was interrupted. Its thread must look from time to time, and end.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    fn set(&self) {
        // Relaxed: publishes no other data.
        self.0.store(true, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Unwinds the thread after an interrupt, without the message of a panic.
    pub(crate) fn unwind_if_set(&self) {
        if self.is_set() {
            resume_unwind(Box::new("interrupted"));
        }
    }
}

/// A reader that fails after an interrupt.
pub(crate) struct InterruptibleReader<R>(pub(crate) R, pub(crate) Interrupt);

impl<R: Read> Read for InterruptibleReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.is_set() {
            return Err(io::Error::other("interrupted"));
        }
        self.0.read(buffer)
    }
}

/// Runs `work` on a thread of its own while other Python threads run. A panic in it raises
/// `InternalError`.
///
/// If a signal handler raises an exception, returns it at once; the thread ends when it next looks
/// at its [`Interrupt`].
pub(crate) fn run_interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Interrupt) -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let (interrupt, receiver) = (Interrupt::default(), Mutex::new(receiver));
    let of_thread = interrupt.clone();
    let thread = thread::Builder::new()
        .spawn(move || {
            // Fails only after an interrupt, when nobody receives.
            let _ = sender.send(work(&of_thread));
        })
        .map_err(|error| PyRuntimeError::new_err(format!("no thread could be started: {error}")))?;
    loop {
        let received = py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(INTERVAL));
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| interrupt.set())?,
            Err(RecvTimeoutError::Disconnected) => {
                let panic = py.detach(|| thread.join()).err();
                return Err(internal(&*panic.unwrap_or_else(|| Box::new("a thread without a result"))));
            }
        }
    }
}
