//! How long a device takes, and what its memory allows at most.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;

use super::abi::BandwidthArgs;
use super::buffer::{View, ViewMut};
use super::device::Device;
use super::driver;
use super::error::GpuError;
use super::launch::Ceiling;
use radixkv_attention::ShapeError;

/// A moment in a device's stream.
#[derive(Debug)]
pub struct Mark {
    event: CudaEvent,
}

impl Device {
    /// Marks the moment when all that is queued so far is done.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    pub fn mark(&self) -> Result<Mark, GpuError> {
        Ok(Mark { event: self.stream().record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))? })
    }

    /// Queues a kernel that reads all of `from` and keeps nothing: no kernel reads faster.
    ///
    /// # Errors
    ///
    /// If the view is of another device, or the kernel does not start.
    pub fn read_all(&self, from: View<'_, u16>) -> Result<(), GpuError> {
        let from = self.resolve(from.raw())?;
        // The kernel writes 4 bytes by chance; into what it reads, which stays as it is then.
        self.bandwidth(Ceiling::Read, from.address, from.address, from.len)
    }

    /// Queues a kernel that copies all of `from` to `to`: what copies of ours are measured against.
    ///
    /// # Errors
    ///
    /// If a view is of another device, they are not equally long, or the kernel does not start.
    pub fn copy_all(&self, from: View<'_, u16>, to: ViewMut<'_, u16>) -> Result<(), GpuError> {
        let (from, to) = (self.resolve(from.raw())?, self.resolve(to.raw())?);
        if from.len != to.len {
            return Err(ShapeError::Length { what: "a copy", given: to.len, needed: from.len }.into());
        }
        self.bandwidth(Ceiling::Copy, from.address, to.address, from.len)
    }

    fn bandwidth(&self, ceiling: Ceiling, from: u64, to: u64, elements: usize) -> Result<(), GpuError> {
        let units = (elements * size_of::<u16>() / 16) as u64;
        let blocks = 2 * self.properties().multiprocessors as usize;
        self.launch(ceiling, (blocks, 1), &BandwidthArgs { from, to, units })
    }
}

impl Mark {
    /// Microseconds until `end`, after waiting for it.
    ///
    /// # Errors
    ///
    /// If something queued before failed.
    pub fn microseconds_to(&self, end: &Self) -> Result<f64, GpuError> {
        self.event.synchronize()?;
        end.event.synchronize()?;
        Ok(f64::from(driver::elapsed(self.event.cu_event(), end.event.cu_event())?) * 1e3)
    }
}
