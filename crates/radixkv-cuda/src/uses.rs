//! Tracks which streams may still use a piece of memory. `kv` and `host` keep one for their memory;
//! `swap` notes its transfers there.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream, DriverError};

use super::device::Device;
use super::driver::{is_done, retry_once, wait_for};

/// Uses of one piece of memory that may be in flight: for each stream an event after its last use
/// (G2, G5).
///
/// A use is removed when a later use by the same stream is noted, or when it is found to be done.
/// Work is queued and noted under the lock around this struct, so that uses of one stream are noted
/// in the stream's order.
#[derive(Debug, Default)]
pub(super) struct Uses {
    last: Vec<(u64, Arc<CudaEvent>)>,
}

impl Uses {
    /// Notes that `stream` uses the memory until `event`.
    pub(super) fn note(&mut self, stream: &Device, event: &Arc<CudaEvent>) {
        let over = |event: &CudaEvent| matches!(is_done(event), Ok(true));
        self.last.retain(|(by, event)| *by != stream.identity() && !over(event));
        self.last.push((stream.identity(), Arc::clone(event)));
    }

    /// Takes all uses out of this struct.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Waits until all are done; fails if one of them failed.
    pub(super) fn wait(&self) -> Result<(), DriverError> {
        self.last.iter().try_for_each(|(_, event)| wait_for(event))
    }

    /// Waits until all uses have ended, done or failed. Called before the memory is freed.
    pub(super) fn end(&mut self) {
        for (_, event) in self.last.drain(..) {
            retry_once(|| wait_for(&event));
        }
    }

    /// Makes the stream of `device` wait until all are done, before work that is queued on it
    /// later.
    pub(super) fn wait_on(&self, device: &Device) -> Result<(), DriverError> {
        self.last.iter().try_for_each(|(_, event)| device.stream().wait(event))
    }

    /// Makes `stream` wait until all uses have ended. Called before freeing the memory is queued
    /// there.
    pub(super) fn end_before(&mut self, stream: &CudaStream) {
        for (_, event) in self.last.drain(..) {
            if stream.wait(&event).is_err() {
                retry_once(|| wait_for(&event));
            }
        }
    }
}
