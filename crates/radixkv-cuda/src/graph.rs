//! Work recorded once and queued again as a whole: a step of small kernels costs one start.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError};

use super::device::Device;
use super::driver;
use super::error::{Code, GpuError};

/// What the binding calls for graphs.
const FUNCTIONS: [&str; 6] = [
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
];

/// Work that a device recorded instead of doing it.
pub struct Graph {
    graph: CudaGraph,
    /// Its kernels are what the graph starts.
    _device: Device,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

impl Device {
    /// Records what `queue` queues on the device, instead of doing it.
    ///
    /// Only launches can be recorded: operations on batches that were prepared before, not preparing or allocating.
    /// Nobody else may use the device meanwhile, and nothing of its memory may be dropped: that is not recorded either,
    /// and the memory is not given back before the context ends.
    ///
    /// # Errors
    ///
    /// The first error of `queue`, which is [`GpuError::NotRecorded`] where it asked for what cannot be recorded, or
    /// where the stream is an engine's default stream; or if the driver knows no graphs, or a recording stands within
    /// another. The device goes on as if nothing had been recorded, after a panic of `queue` too.
    pub fn record(&self, queue: impl FnOnce() -> Result<(), GpuError>) -> Result<Graph, GpuError> {
        if !driver::offers(&FUNCTIONS) {
            return Err(GpuError::Driver { code: Code::NOT_SUPPORTED });
        }
        let recording = Recording::begin(self)?;
        queue()?;
        recording.end()
    }
}

/// A stream that records; it ends where it is dropped, in a panic too.
struct Recording<'a> {
    device: &'a Device,
}

impl<'a> Recording<'a> {
    fn begin(device: &'a Device) -> Result<Self, GpuError> {
        device.stream().begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        Ok(Self { device })
    }

    fn end(self) -> Result<Graph, GpuError> {
        let device = ManuallyDrop::new(self).device;
        let graph = stop(device.stream())?.ok_or(GpuError::Driver { code: Code::NOT_SUPPORTED })?;
        Ok(Graph { graph, _device: device.clone() })
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // What was recorded goes; whoever drops has an error of their own to tell.
        drop(stop(self.device.stream()));
    }
}

/// Ends a recording; what came of it, unless something failed meanwhile.
fn stop(stream: &Arc<CudaStream>) -> Result<Option<CudaGraph>, DriverError> {
    // A drop that failed is told at the next call, in place of what that does: asked for here, so that the end is one.
    let dropped = stream.context().check_err();
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    dropped.and(graph)
}

impl Graph {
    /// Queues all of it.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Safety
    ///
    /// Every buffer, storage and batch that was used while recording must still be there, where it was, until this is
    /// done.
    pub unsafe fn launch(&self) -> Result<(), GpuError> {
        Ok(self.graph.launch()?)
    }
}
