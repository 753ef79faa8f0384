//! Movers and the end of the interpreter: a thread that asks for an interpreter that is ending is
//! stopped where it is. So no call begins once it ends, and it waits for those that have begun.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::fork::Process;

/// How long the end waits for calls that have begun: a mover may wait for what never comes.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Calls under way, in the lower half, and the process in which they are: those of a parent do not
/// go on in its forked child.
static CALLS: AtomicU64 = AtomicU64::new(0);

fn own() -> u64 {
    u64::from(Process::current().number()) << 32
}

/// Calls of this process that are under way.
fn calls() -> u64 {
    let calls = CALLS.load(SeqCst);
    if calls & !u64::from(u32::MAX) == own() { calls - own() } else { 0 }
}

fn change(change: impl Fn(u64) -> u64) {
    let changed = |calls: u64| {
        let under_way = if calls & !u64::from(u32::MAX) == own() { calls - own() } else { 0 };
        Some(own() + change(under_way))
    };
    // It never fails: the change is always made.
    let _ = CALLS.fetch_update(SeqCst, SeqCst, changed);
}

/// A call of a mover, until it is dropped.
pub(super) struct Call(());

impl Call {
    /// Begins a call, unless the interpreter is ending.
    pub(super) fn begin() -> Option<Self> {
        change(|calls| calls + 1);
        let call = Self(());
        // After the call was counted: the end either sees it or is seen by it.
        (!IS_ENDING.load(SeqCst)).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        change(|calls| calls.saturating_sub(1));
    }
}

/// Lets no call begin from now on, and waits for those that have begun.
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

/// Ends the movers before the interpreter does.
pub(super) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end_movers, module)?;
    module.py().import("atexit")?.call_method1("register", (end,))?;
    Ok(())
}
