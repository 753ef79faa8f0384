//! The error of the CPU backends.

use std::fmt;

use crate::shape::ShapeError;

/// Why an operation of [`Cpu`](super::Cpu) failed. Nothing has been written.
///
/// ```
/// use radixkv_attention::cpu::{Cpu, CpuError};
/// use radixkv_attention::{Backend, Dtype, Layout, Order};
///
/// let (dtype, order) = (Dtype::F32, Order::Nhd);
/// let huge = Layout { layers: 64, blocks: 1 << 30, block_size: 1024, kv_heads: 8, head_dim: 128, value_dim: 128, dtype, order };
/// assert_eq!(Cpu.allocate(huge).err(), Some(CpuError::Memory { bytes: huge.bytes() }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum CpuError {
    /// A shape does not fit.
    Shape(ShapeError),
    /// The system cannot allocate the memory: use fewer blocks.
    Memory {
        /// Bytes requested.
        bytes: usize,
    },
}

impl From<ShapeError> for CpuError {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(error) => error.fmt(f),
            Self::Memory { bytes } => write!(f, "allocating {bytes} bytes of keys and values failed: use fewer blocks"),
        }
    }
}

impl std::error::Error for CpuError {}
