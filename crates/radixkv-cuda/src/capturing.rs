//! Whether a device's work is being captured, and what was asked of it meanwhile.
//!
//! A driver captures allocations, and copies of pageable memory: a graph that is launched later would use memory that
//! was freed. So the crate refuses them itself.

use std::any::Any;
use std::cell::RefCell;

use parking_lot::Mutex;

/// What is freed later.
type Dropped = Vec<Box<dyn Any + Send>>;

thread_local! {
    /// For each capture of this thread, one within another, what the thread has dropped of other devices meanwhile.
    static OF_OTHERS: RefCell<Vec<Dropped>> = const { RefCell::new(Vec::new()) };
}

/// The capture of one device, if there is one.
#[derive(Debug, Default)]
pub(super) struct Capturing {
    capture: Mutex<Option<UnderWay>>,
    /// What was dropped while an engine captured its stream.
    kept: Mutex<Dropped>,
}

/// What has happened to a capture that is under way.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Something was refused, or dropped: there will be no graph.
    broken: bool,
    /// What was dropped: freed when the capture has ended, because freeing would be captured too.
    dropped: Dropped,
}

impl Capturing {
    pub(super) fn begin(&self) {
        *self.capture.lock() = Some(UnderWay::default());
        OF_OTHERS.with_borrow_mut(|of_others| of_others.push(Dropped::new()));
    }

    /// What the capture was, to be dropped after its end.
    pub(super) fn end(&self) -> UnderWay {
        let mut capture = self.capture.lock().take().unwrap_or_default();
        OF_OTHERS.with_borrow_mut(|of_others| {
            let last = of_others.pop().unwrap_or_default();
            of_others.last_mut().unwrap_or(&mut capture.dropped).extend(last);
        });
        capture
    }

    /// Whether a capture is under way, which then makes no graph.
    pub(super) fn breaks(&self) -> bool {
        self.capture.lock().as_mut().map(|capture| capture.broken = true).is_some()
    }

    /// Drops `memory`, or keeps it until the capture has ended: that of the crate, which then makes no graph, or one of
    /// the engine, which goes on.
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

    /// Frees what was dropped while an engine captured, after that.
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

/// Drops `memory` of a device that nothing captures, or keeps it until the captures of this thread have ended: a thread
/// that captures may not free page-locked memory, nor wait for those who use it.
pub(super) fn drop_after_thread(memory: impl Any + Send) {
    let mut memory = Some(memory);
    // Without the list the thread is ending, and captures nothing.
    let _ = OF_OTHERS.try_with(|of_others| {
        if let Some(last) = of_others.borrow_mut().last_mut() {
            last.push(Box::new(memory.take()));
        }
    });
}
