//! Streams that may still be using some memory.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, DriverError};

use super::device::Device;

/// Uses of memory that may be in flight: for each stream an event behind the last of them (G2, G5).
///
/// A use is forgotten when a later one of the same stream is noted, or when it was seen to be done. Both the queuing and
/// the noting are done under the lock that this lies in, so that uses of one stream are noted in the stream's order.
#[derive(Debug, Default)]
pub(super) struct Uses {
    last: Vec<(u64, Arc<CudaEvent>)>,
}

impl Uses {
    /// Notes that `stream` uses the memory until `event`.
    pub(super) fn note(&mut self, stream: &Device, event: &Arc<CudaEvent>) {
        let over = |event: &CudaEvent| matches!(event.try_is_complete(), Ok(true));
        self.last.retain(|(by, event)| *by != stream.identity() && !over(event));
        self.last.push((stream.identity(), Arc::clone(event)));
    }

    /// Waits until all are done; fails where one of them did.
    pub(super) fn wait(&self) -> Result<(), DriverError> {
        self.last.iter().try_for_each(|(_, event)| event.synchronize())
    }

    /// Waits until all are over, done or failed: what comes next is freeing the memory.
    pub(super) fn end(&mut self) {
        for (_, event) in self.last.drain(..) {
            insist(|| event.synchronize());
        }
    }

    /// Makes what `device` queues from now on, freeing the memory, wait until all are over.
    pub(super) fn end_before(&mut self, device: &Device) {
        for (_, event) in self.last.drain(..) {
            if device.stream().wait(&event).is_err() {
                insist(|| event.synchronize());
            }
        }
    }
}

/// Waits, and once more if that fails: the binding tells of an earlier failed drop, once, in place of waiting. What
/// cannot be waited for twice has ended with its context.
pub(super) fn insist(wait: impl Fn() -> Result<(), DriverError>) {
    let _ = wait().or_else(|_| wait());
}
