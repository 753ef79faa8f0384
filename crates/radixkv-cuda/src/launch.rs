//! Starting kernels: the one place where an argument struct reaches the driver.
//!
//! # Invariants
//!
//! - **G3** The addresses in an argument struct are those of [`Buffer`](super::Buffer)s and views of the device it is
//!   started on, long enough for what the kernel's plan says; plans come from `plan` alone, for batches that were
//!   checked.
#![allow(unsafe_code)]

use cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};

use super::abi::{AppendArgs, BandwidthArgs, CompareArgs, CopyArgs, DecodeArgs, MergeArgs, TileArgs};
use super::device::Device;
use super::error::GpuError;
use super::kernel::{Kernel, Variant};

/// What one kernel takes.
pub(super) trait Arguments: DeviceRepr {
    /// Which of the kernels, for elements and heads of this kind.
    type Which;

    /// The kernel that takes it.
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
    AppendArgs, (): |()| Kernel::Append;
    CopyArgs, (): |()| Kernel::CopyBlocks;
    CompareArgs, (): |()| Kernel::CompareKeys;
    DecodeArgs, Variant: Kernel::Decode;
    MergeArgs, Variant: Kernel::Merge;
    TileArgs, (Variant, Sharing): |(variant, sharing)| match sharing {
        Sharing::Alone => Kernel::Extend(variant),
        Sharing::Prefix => Kernel::Cascade(variant),
    };
    BandwidthArgs, Ceiling: |ceiling| match ceiling {
        Ceiling::Read => Kernel::Read,
        Ceiling::Copy => Kernel::Copy,
    };
}

/// Whose rows a tile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Neighbouring tokens of one sequence, causal.
    Alone,
    /// Sequences that share a prefix; all of it is visible to all.
    Prefix,
}

/// What a ceiling is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ceiling {
    /// Reading.
    Read,
    /// Reading and writing.
    Copy,
}

impl Device {
    /// Queues a kernel with a grid of `grid` blocks; none at all is nothing to do.
    pub(super) fn launch<A: Arguments>(
        &self,
        which: A::Which,
        grid: (usize, usize),
        arguments: &A,
    ) -> Result<(), GpuError> {
        let kernel = A::kernel(which);
        let (Ok(across), Ok(up)) = (u32::try_from(grid.0), u32::try_from(grid.1)) else {
            return Err(GpuError::TooMuch { kernel });
        };
        if across == 0 || up == 0 {
            return Ok(());
        }
        if across > MOST_ACROSS || up > MOST_UP {
            return Err(GpuError::TooMuch { kernel });
        }
        let shape = kernel.shape();
        let config = LaunchConfig {
            grid_dim: (across, up, 1),
            block_dim: (shape.threads, 1, 1),
            shared_mem_bytes: shape.shared_bytes,
        };
        let mut launch = self.stream().launch_builder(self.kernels().function(kernel));
        launch.arg(arguments);
        // SAFETY: the kernel takes one struct of this type (`Arguments`), whose addresses and plan fit (G3).
        unsafe { launch.launch(config) }.map_err(|error| GpuError::launching(kernel, error))?;
        Ok(())
    }
}

/// Most blocks of a grid, and most rows of them.
const MOST_ACROSS: u32 = i32::MAX as u32;
const MOST_UP: u32 = 65_535;
