//! Launches kernels: the only place where an argument struct is passed to the driver.
//!
//! # Invariants
//!
//! - **G3** The addresses in an argument struct are those of [`Buffer`](super::Buffer)s, views and
//!   storages of the device it is launched on, long enough for the kernel's plan; plans come only
//!   from `plan`, for batches that were checked.
#![allow(unsafe_code)]

use cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};

use super::abi::{AppendArgs, BandwidthArgs, CompareArgs, CopyArgs, DecodeArgs, MergeArgs, TileArgs};
use super::device::Device;
use super::error::GpuError;
use super::kernel::{Kernel, Variant};

/// The largest grid: thread blocks in x and in y.
const MAX_GRID_X: u32 = i32::MAX as u32;
const MAX_GRID_Y: u32 = 65_535;

/// An argument struct, with the kernels that take it.
pub(super) trait Arguments: DeviceRepr {
    /// Selects one of the kernels.
    type Which;

    /// The kernel selected.
    fn kernel(which: Self::Which) -> Kernel;
}

macro_rules! arguments {
    ($($args:ty, $which:ty: $kernel:expr;)*) => {$(
        impl Arguments for $args {
            type Which = $which;

            fn kernel(which: $which) -> Kernel {
                $kernel(which)
            }
        }
    )*};
}
arguments! {
    AppendArgs, Variant: |variant| match variant {
        Variant::I8D64 | Variant::I8D128 => Kernel::AppendI8,
        Variant::E4m3D64 | Variant::E4m3D128 => Kernel::AppendE4m3,
        _ => Kernel::Append,
    };
    CopyArgs, (): |()| Kernel::CopyBlocks;
    CompareArgs, (): |()| Kernel::CompareKeys;
    DecodeArgs, Kernel: |kernel| kernel;
    MergeArgs, Variant: Kernel::Merge;
    TileArgs, (Variant, TileRows): |(variant, rows)| match rows {
        TileRows::Chunk { wgmma: false } => Kernel::Extend(variant),
        TileRows::Chunk { wgmma: true } => Kernel::ExtendWgmma(variant),
        TileRows::Sharers => Kernel::Cascade(variant),
    };
    BandwidthArgs, BandwidthKernel: |which| match which {
        BandwidthKernel::Read => Kernel::Read,
        BandwidthKernel::Copy => Kernel::Copy,
    };
}

/// The rows of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TileRows {
    /// Rows of neighbouring tokens of one sequence; causal. Computed by warpgroup matrix products,
    /// or of warps.
    Chunk { wgmma: bool },
    /// Rows of sequences that share a prefix, which all of them see; or of one sequence, over the
    /// rest of its context.
    Sharers,
}

/// The access to memory that a kernel measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BandwidthKernel {
    /// Reading.
    Read,
    /// Reading and writing.
    Copy,
}

impl Device {
    /// Queues a kernel with a grid of thread blocks. Does nothing for an empty grid.
    pub(super) fn launch<A: Arguments>(
        &self,
        which: A::Which,
        grid: (usize, usize),
        arguments: &A,
    ) -> Result<(), GpuError> {
        let kernel = A::kernel(which);
        let (Ok(x), Ok(y)) = (u32::try_from(grid.0), u32::try_from(grid.1)) else {
            return Err(GpuError::TooMuch { kernel });
        };
        if x == 0 || y == 0 {
            return Ok(());
        }
        if x > MAX_GRID_X || y > MAX_GRID_Y {
            return Err(GpuError::TooMuch { kernel });
        }
        let shape = kernel.shape();
        let config = LaunchConfig {
            grid_dim: (x, y, 1),
            block_dim: (shape.threads, 1, 1),
            shared_mem_bytes: shape.shared_bytes,
        };
        let mut launch = self.stream().launch_builder(self.kernels().function(kernel));
        launch.arg(arguments);
        // SAFETY: the kernel takes one struct of this type (`Arguments`), whose addresses and plan
        // fit (G3).
        unsafe { launch.launch(config) }.map_err(|error| GpuError::launching(kernel, error))?;
        Ok(())
    }
}
