//! Work recorded once and queued again as a whole: a step of small kernels costs one start.
#![allow(unsafe_code)]

use std::fmt;

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

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
    /// Nobody else may use the device meanwhile.
    ///
    /// # Errors
    ///
    /// The first error of `queue`; or if the driver knows no graphs, the stream is an engine's default stream, or
    /// something was queued that cannot be recorded.
    pub fn record(&self, queue: impl FnOnce() -> Result<(), GpuError>) -> Result<Graph, GpuError> {
        if !driver::offers(&FUNCTIONS) {
            return Err(GpuError::Driver { code: Code::NOT_SUPPORTED });
        }
        let stream = self.stream();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let queued = queue();
        let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        queued?;
        let nothing = GpuError::Driver { code: Code::NOT_SUPPORTED };
        Ok(Graph { graph: graph?.ok_or(nothing)? })
    }
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
