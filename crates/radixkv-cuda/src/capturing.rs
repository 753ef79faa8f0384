//! Tracks whether a device's work is being captured, and keeps memory that is dropped meanwhile.
//!
//! A driver also captures allocations and copies of pageable memory, and a graph that is launched
//! later would use memory that was freed. So the crate refuses these itself.

use std::any::Any;
use std::cell::RefCell;

use parking_lot::Mutex;

/// Memory that is freed later.
type Dropped = Vec<Box<dyn Any + Send>>;

thread_local! {
    /// For each of the nested captures of this thread, the memory of other devices that the thread
    /// has dropped meanwhile.
    static OF_OTHERS: RefCell<Vec<Dropped>> = const { RefCell::new(Vec::new()) };
}

/// The capture of one device, if there is one.
#[derive(Debug, Default)]
pub(super) struct Capturing {
    capture: Mutex<Option<UnderWay>>,
    /// Memory that was dropped while an engine captured its stream.
    kept: Mutex<Dropped>,
}

/// The state of a capture in progress.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Something was refused, or dropped: there will be no graph.
    broken: bool,
    /// Memory that was dropped. It is freed when the capture has ended, because freeing would also
    /// be captured.
    dropped: Dropped,
}

impl Capturing {
    pub(super) fn begin(&self) {
        *self.capture.lock() = Some(UnderWay::default());
        OF_OTHERS.with_borrow_mut(|of_others| of_others.push(Dropped::new()));
    }

    /// Returns the state of the capture, which must be dropped after the capture's end.
    pub(super) fn end(&self) -> UnderWay {
        let mut capture = self.capture.lock().take().unwrap_or_default();
        OF_OTHERS.with_borrow_mut(|of_others| {
            let last = of_others.pop().unwrap_or_default();
            of_others.last_mut().unwrap_or(&mut capture.dropped).extend(last);
        });
        capture
    }

    /// Returns whether a capture is in progress, and makes that capture end without a graph.
    pub(super) fn breaks(&self) -> bool {
        self.capture.lock().as_mut().map(|capture| capture.broken = true).is_some()
    }

    /// Drops `memory`, or keeps it until a capture has ended: a capture by the crate, which then
    /// makes no graph, or one by the engine, which continues.
    pub(super) fn drop_after(&self, memory: impl Any + Send, engine_captures: impl FnOnce() -> bool) {
        if let Some(capture) = self.capture.lock().as_mut() {
            capture.broken = true;
            capture.dropped.push(Box::new(memory));
            return;
        }
        if engine_captures() {
            self.kept.lock().push(Box::new(memory));
            return;
        }
        self.free_kept();
        drop_after_thread(memory);
    }

    /// Frees the memory that was dropped while an engine captured. Called after the capture.
    pub(super) fn free_kept(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        drop(kept);
    }
}

impl UnderWay {
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}

/// Drops `memory` of a device that nothing captures, or keeps it until the captures of this thread
/// have ended: a thread that captures may not free page-locked memory, nor wait for work that uses
/// it.
pub(super) fn drop_after_thread(memory: impl Any + Send) {
    let mut memory = Some(memory);
    // If the list is gone, the thread is ending and captures nothing.
    let _ = OF_OTHERS.try_with(|of_others| {
        if let Some(last) = of_others.borrow_mut().last_mut() {
            last.push(Box::new(memory.take()));
        }
    });
}
