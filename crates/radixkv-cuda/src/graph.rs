//! CUDA graphs: work captured once and launched as a whole, so that a step of small kernels costs
//! one launch.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError};

use super::device::Device;
use super::driver;
use super::error::{Code, GpuError};

/// The functions that the binding calls for graphs.
const FUNCTIONS: [&str; 6] = [
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
];

/// Work of a device, captured by [`Device::capture`] and launched as often as needed.
///
/// # Examples
///
/// ```no_run
/// # use radixkv_attention::{Backend, Output};
/// # use radixkv_cuda::{Attention, Buffer, Device, GpuError, Kv, Prepared};
/// # fn show(device: &Device, attention: &Attention, kv: &Kv, batch: &Prepared, queries: &Buffer<u16>,
/// #     out: &mut Buffer<u16>) -> Result<(), GpuError> {
/// let decode_all = device.capture(|| {
///     (0..32).try_for_each(|layer| {
///         attention.decode(kv, layer, batch, queries.view(), Output { rows: out.view_mut(), lse: None })
///     })
/// })?;
/// // SAFETY: storage, batch and buffers stay where they are until the wait.
/// unsafe { decode_all.launch() }?;
/// device.synchronize()?;
/// # Ok(())
/// # }
/// ```
pub struct Graph {
    graph: CudaGraph,
    /// Also keeps the kernels of the graph loaded.
    device: Device,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

impl Device {
    /// Captures what `queue` queues on the device into a graph, instead of running it.
    ///
    /// Only launches can be captured: operations on batches that were prepared before, not
    /// preparing, allocating, copying from or to host memory, or waiting. No other thread may use
    /// the device meanwhile. If a buffer, a storage, a [`HostPool`](super::HostPool) or a
    /// [`Swap`](super::Swap) of it is dropped, no graph is made, and the memory is freed after the
    /// capture.
    ///
    /// # Errors
    ///
    /// The first error of `queue`; [`GpuError::NotCaptured`] if `queue` called something that
    /// cannot be captured, the device's stream is a default stream, or an engine captures it;
    /// [`GpuError::Driver`] if the driver has no graphs, or one capture is inside another. After an
    /// error or a panic of `queue` the device continues as if nothing had been captured.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device, from: &Buffer<u16>, to: &mut Buffer<u16>) -> Result<(), GpuError> {
    /// let copy = device.capture(|| device.copy_all(from.view(), to.view_mut()))?; // nothing is copied yet
    /// # Ok(())
    /// # }
    /// ```
    pub fn capture(&self, queue: impl FnOnce() -> Result<(), GpuError>) -> Result<Graph, GpuError> {
        if !driver::has_functions(&FUNCTIONS) {
            return Err(GpuError::Driver { code: Code::NOT_SUPPORTED });
        }
        let capture = Capture::begin(self)?;
        queue()?;
        capture.end()
    }
}

/// A capture in progress. It ends when it is dropped, also by a panic.
struct Capture<'a> {
    device: &'a Device,
}

impl<'a> Capture<'a> {
    fn begin(device: &'a Device) -> Result<Self, GpuError> {
        if device.engine_captures().map_err(GpuError::of)? {
            return Err(GpuError::NotCaptured { code: Code::CAPTURE_UNSUPPORTED });
        }
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        device.stream().begin_capture(mode).map_err(GpuError::of)?;
        device.capturing().begin();
        Ok(Self { device })
    }

    fn end(self) -> Result<Graph, GpuError> {
        let device = ManuallyDrop::new(self).device;
        let graph = stop(device.stream());
        if device.capturing().end().is_broken() {
            return Err(GpuError::NotCaptured { code: Code::CAPTURE_INVALIDATED });
        }
        let graph = graph.map_err(GpuError::of)?.ok_or(GpuError::Driver { code: Code::NOT_SUPPORTED })?;
        Ok(Graph { graph, device: device.clone() })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // What was captured is dropped; the error that led here is reported by the caller.
        drop(stop(self.device.stream()));
        drop(self.device.capturing().end());
    }
}

/// Ends a capture; returns its graph, unless something failed meanwhile.
fn stop(stream: &Arc<CudaStream>) -> Result<Option<CudaGraph>, DriverError> {
    // After a failed drop, the binding's next call returns that error and is not made. The error is
    // taken here, so that the capture ends in any case.
    let dropped = stream.context().check_err();
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    dropped.and(graph)
}

impl Graph {
    /// Queues the graph's work on the device's stream.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Safety
    ///
    /// Every buffer, storage and batch that was captured must stay where it is until the work is
    /// done.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device, copy: &Graph) -> Result<(), GpuError> {
    /// // SAFETY: both buffers stay where they are until the wait.
    /// unsafe { copy.launch() }?;
    /// device.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn launch(&self) -> Result<(), GpuError> {
        let _together = self.device.queue_together();
        self.graph.launch().map_err(GpuError::of)
    }
}
