//! Whether a device's work is being captured, and what was asked of it meanwhile.
//!
//! A driver captures allocations, and copies of pageable memory: a graph that is launched later would use memory that
//! was freed. So the crate refuses them itself.

use std::any::Any;

use parking_lot::Mutex;

/// The capture of one device, if there is one.
#[derive(Debug, Default)]
pub(super) struct Capturing {
    capture: Mutex<Option<UnderWay>>,
}

/// What has happened to a capture that is under way.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Something was refused, or dropped: there will be no graph.
    broken: bool,
    /// What was dropped: freed when the capture has ended, because freeing would be captured too.
    dropped: Vec<Box<dyn Any + Send>>,
}

impl Capturing {
    pub(super) fn begin(&self) {
        *self.capture.lock() = Some(UnderWay::default());
    }

    /// What the capture was, to be dropped after its end.
    pub(super) fn end(&self) -> UnderWay {
        self.capture.lock().take().unwrap_or_default()
    }

    /// Whether a capture is under way, which then makes no graph.
    pub(super) fn breaks(&self) -> bool {
        self.capture.lock().as_mut().map(|capture| capture.broken = true).is_some()
    }

    /// Drops `memory`, or keeps it until the capture has ended.
    pub(super) fn drop_after(&self, memory: impl Any + Send) {
        if let Some(capture) = self.capture.lock().as_mut() {
            capture.broken = true;
            capture.dropped.push(Box::new(memory));
        }
    }
}

impl UnderWay {
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}
