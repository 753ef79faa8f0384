//! Stops mover calls before the interpreter ends. A thread that tries to acquire the GIL of an
//! ending interpreter hangs. So an `atexit` handler refuses new calls, and waits for the calls in
//! progress.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::fork::Process;

/// How long the handler waits for calls in progress. Bounded, because a mover may never return.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// The lower half is the number of calls in progress, the upper half is their process: calls of a
/// parent do not continue in a forked child.
static CALLS: AtomicU64 = AtomicU64::new(0);

fn own() -> u64 {
    u64::from(Process::current().number()) << 32
}

/// The number of calls in progress in this process.
fn calls() -> u64 {
    let calls = CALLS.load(SeqCst);
    if calls & !u64::from(u32::MAX) == own() { calls - own() } else { 0 }
}

fn change(change: impl Fn(u64) -> u64) {
    let changed = |calls: u64| {
        let under_way = if calls & !u64::from(u32::MAX) == own() { calls - own() } else { 0 };
        Some(own() + change(under_way))
    };
    // Never fails: `changed` always returns `Some`.
    let _ = CALLS.fetch_update(SeqCst, SeqCst, changed);
}

/// A call of a mover, which is in progress until this is dropped.
pub(super) struct Call(());

impl Call {
    /// Begins a call, unless the interpreter is ending.
    pub(super) fn begin() -> Option<Self> {
        change(|calls| calls + 1);
        let call = Self(());
        // Loaded after the call was counted: either `end_movers` sees the call, or the call sees
        // `IS_ENDING`.
        (!IS_ENDING.load(SeqCst)).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        change(|calls| calls.saturating_sub(1));
    }
}

/// Refuses new calls, and waits for calls in progress.
#[pyfunction]
fn end_movers(py: Python<'_>) {
    IS_ENDING.store(true, SeqCst);
    py.detach(|| {
        let until = Instant::now() + LONGEST_WAIT;
        while calls() > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Registers `end_movers` with Python's `atexit`.
pub(super) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end_movers, module)?;
    module.py().import("atexit")?.call_method1("register", (end,))?;
    Ok(())
}
