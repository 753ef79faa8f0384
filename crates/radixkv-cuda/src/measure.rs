//! Measurements: events in a stream, and the highest speed of the memory.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;

use super::abi::BandwidthArgs;
use super::buffer::{View, ViewMut};
use super::device::Device;
use super::driver;
use super::error::GpuError;
use super::launch::BandwidthKernel;
use radixkv_attention::ShapeError;

/// A point in a device's stream, reached when all earlier work is done. From
/// [`Device::record_event`].
///
/// ```no_run
/// # use radixkv_cuda::{Device, GpuError};
/// # fn show(device: &Device, queue_work: impl Fn() -> Result<(), GpuError>) -> Result<(), GpuError> {
/// let start = device.record_event()?;
/// queue_work()?;
/// println!("{:.1} us", start.microseconds_to(&device.record_event()?)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Event {
    event: CudaEvent,
}

impl Device {
    /// Records an event that is reached when all work queued so far is done.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device) -> Result<(), GpuError> {
    /// let (start, end) = (device.record_event()?, device.record_event()?);
    /// println!("an empty stream: {:.1} us", start.microseconds_to(&end)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_event(&self) -> Result<Event, GpuError> {
        self.refuse_capture()?;
        let event = self.stream().record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(GpuError::of)?;
        Ok(Event { event })
    }

    /// Queues a kernel that reads all of `from` and does nothing with it: its time shows the
    /// highest speed of reading memory.
    ///
    /// # Errors
    ///
    /// If the view is of another device, or the kernel does not start; [`GpuError::Unaligned`] if
    /// its length is not a multiple of 16 bytes.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device, buffer: &Buffer<u16>) -> Result<(), GpuError> {
    /// device.read_all(buffer.view())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_all(&self, from: View<'_, u16>) -> Result<(), GpuError> {
        let from = self.resolve(from.raw())?;
        self.bandwidth(BandwidthKernel::Read, from.address, 0, from.len)
    }

    /// Queues a kernel that copies all of `from` to `to`: its time shows the highest speed of
    /// copying memory.
    ///
    /// # Errors
    ///
    /// If a view is of another device, they are not equally long, or the kernel does not start;
    /// [`GpuError::Unaligned`] if their length is not a multiple of 16 bytes.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device, from: &Buffer<u16>, to: &mut Buffer<u16>) -> Result<(), GpuError> {
    /// device.copy_all(from.view(), to.view_mut())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_all(&self, from: View<'_, u16>, to: ViewMut<'_, u16>) -> Result<(), GpuError> {
        let (from, to) = (self.resolve(from.raw())?, self.resolve(to.raw())?);
        if from.len != to.len {
            return Err(ShapeError::Length { what: "a copy", given: to.len, needed: from.len }.into());
        }
        self.bandwidth(BandwidthKernel::Copy, from.address, to.address, from.len)
    }

    fn bandwidth(&self, which: BandwidthKernel, from: u64, to: u64, elements: usize) -> Result<(), GpuError> {
        let bytes = (elements * size_of::<u16>()) as u64;
        if !bytes.is_multiple_of(16) {
            return Err(GpuError::Unaligned { address: bytes });
        }
        let units = bytes / 16;
        let blocks = 2 * self.properties().multiprocessors as usize;
        self.launch(which, (blocks, 1), &BandwidthArgs { from, to, units })
    }
}

impl Event {
    /// Microseconds from this event to `end`, after waiting for both.
    ///
    /// # Errors
    ///
    /// If something queued before failed.
    pub fn microseconds_to(&self, end: &Self) -> Result<f64, GpuError> {
        driver::wait_for(&self.event).map_err(GpuError::of)?;
        driver::wait_for(&end.event).map_err(GpuError::of)?;
        Ok(f64::from(driver::elapsed(&self.event, &end.event)?) * 1e3)
    }
}
