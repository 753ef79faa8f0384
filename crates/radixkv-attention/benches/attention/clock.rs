//! Time that a thread computes, which a busy machine does not stretch, and time that passes.
#![allow(unsafe_code)]

use std::time::Instant;

/// Which time a row is measured in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// Of the calling thread on a processor, where the system tells it: for rows of one thread.
    Thread,
    /// On the wall: for rows of several threads.
    Wall,
}

impl Clock {
    /// What `run` takes.
    pub fn seconds(self, run: &mut dyn FnMut()) -> f64 {
        let (began, wall) = (thread_seconds(), Instant::now());
        run();
        match (self, began, thread_seconds()) {
            (Self::Thread, Some(began), Some(ended)) => ended - began,
            _ => wall.elapsed().as_secs_f64(),
        }
    }
}

#[cfg(unix)]
fn thread_seconds() -> Option<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `time`.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    (failed == 0).then_some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

#[cfg(not(unix))]
fn thread_seconds() -> Option<f64> {
    None
}
