//! The kernels: their names, the file of each, and what each is started with.

use std::fmt;

use super::module::Module;
use radixkv_attention::Dtype;

/// Most query rows of a tile of [`Kernel::Extend`] and [`Kernel::Cascade`].
pub(super) const TILE_ROWS: usize = 128;

/// An element type and a head size that the attention kernels are compiled for.
///
/// ```
/// use radixkv_attention::Dtype;
/// use radixkv_cuda::Variant;
///
/// assert_eq!(Variant::of(Dtype::Bf16, 128), Some(Variant::Bf16D128));
/// assert_eq!(Variant::of(Dtype::F32, 128), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Variant {
    /// `bf16`, heads of 64 elements.
    Bf16D64,
    /// `bf16`, heads of 128 elements.
    Bf16D128,
    /// `f16`, heads of 64 elements.
    F16D64,
    /// `f16`, heads of 128 elements.
    F16D128,
}

/// A kernel of the crate, as errors name it.
///
/// ```
/// use radixkv_cuda::{Kernel, Variant};
///
/// assert_eq!(Kernel::Decode(Variant::F16D64).to_string(), "rk_decode_f16_d64");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Writes new keys and values into their slots.
    Append,
    /// Copies blocks, on the device or to and from page-locked memory.
    CopyBlocks,
    /// Lengths of common prefixes of pairs of token runs.
    CompareKeys,
    /// One query row of a sequence over a part of its context.
    Decode(Variant),
    /// Rows of one sequence, causal.
    Extend(Variant),
    /// Rows of several sequences over the prefix that they share, and of each over the rest of its context.
    Cascade(Variant),
    /// Merges the parts of a context.
    Merge(Variant),
    /// Reads memory and does nothing with it: for measuring.
    Read,
    /// Copies memory: for measuring.
    Copy,
}

/// The thread blocks of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaunchShape {
    /// Threads in a block.
    pub(super) threads: u32,
    /// Dynamic shared memory of a block.
    pub(super) shared_bytes: u32,
    /// Blocks that a multiprocessor of compute capability 9.0 runs at once.
    pub(super) blocks_at_once: u32,
}

impl Variant {
    const ALL: [Self; 4] = [Self::Bf16D64, Self::Bf16D128, Self::F16D64, Self::F16D128];

    /// The variant for this element type and this number of elements in a head, if there is one.
    pub fn of(dtype: Dtype, head_dim: usize) -> Option<Self> {
        match (dtype, head_dim) {
            (Dtype::Bf16, 64) => Some(Self::Bf16D64),
            (Dtype::Bf16, 128) => Some(Self::Bf16D128),
            (Dtype::F16, 64) => Some(Self::F16D64),
            (Dtype::F16, 128) => Some(Self::F16D128),
            _ => None,
        }
    }

    /// Elements of a head.
    pub(super) fn head_dim(self) -> usize {
        match self {
            Self::Bf16D64 | Self::F16D64 => 64,
            Self::Bf16D128 | Self::F16D128 => 128,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Bf16D64 => "bf16_d64",
            Self::Bf16D128 => "bf16_d128",
            Self::F16D64 => "f16_d64",
            Self::F16D128 => "f16_d128",
        }
    }
}

impl Kernel {
    /// All kernels, in the order of [`index`](Self::index).
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let plain = [Self::Append, Self::CopyBlocks, Self::CompareKeys, Self::Read, Self::Copy];
        let of = |variant| [Self::Decode(variant), Self::Extend(variant), Self::Cascade(variant), Self::Merge(variant)];
        plain.into_iter().chain(Variant::ALL.into_iter().flat_map(of))
    }

    /// Its index in [`all`](Self::all).
    pub(super) fn index(self) -> usize {
        let of = |nth: usize, variant: Variant| 5 + 4 * variant as usize + nth;
        match self {
            Self::Append => 0,
            Self::CopyBlocks => 1,
            Self::CompareKeys => 2,
            Self::Read => 3,
            Self::Copy => 4,
            Self::Decode(variant) => of(0, variant),
            Self::Extend(variant) => of(1, variant),
            Self::Cascade(variant) => of(2, variant),
            Self::Merge(variant) => of(3, variant),
        }
    }

    /// The file it is compiled from.
    pub(super) fn module(self) -> Module {
        match self {
            Self::Append => Module::Append,
            Self::CopyBlocks => Module::CopyBlocks,
            Self::CompareKeys => Module::CompareKeys,
            Self::Decode(_) => Module::Decode,
            Self::Extend(_) => Module::Extend,
            Self::Cascade(_) => Module::Cascade,
            Self::Merge(_) => Module::Merge,
            Self::Read | Self::Copy => Module::Bandwidth,
        }
    }

    /// Its thread blocks, as `kernels/README.md` says.
    pub(super) fn shape(self) -> LaunchShape {
        let plain = |threads, blocks_at_once| LaunchShape { threads, shared_bytes: 0, blocks_at_once };
        let tiles = |shared_bytes| LaunchShape { threads: 128, shared_bytes, blocks_at_once: 2 };
        let (item, rows) = (96 << 10, |variant: Variant| 768 * variant.head_dim() as u32 + 512);
        match self {
            Self::Append | Self::CopyBlocks | Self::CompareKeys => plain(256, 4),
            Self::Read | Self::Copy => plain(512, 2),
            Self::Merge(_) => plain(128, 16),
            Self::Decode(_) => tiles(item),
            Self::Extend(variant) => tiles(rows(variant)),
            Self::Cascade(variant) => tiles(rows(variant).max(item)),
        }
    }
}

/// Its name in the image.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append => f.write_str("rk_append"),
            Self::CopyBlocks => f.write_str("rk_copy_blocks"),
            Self::CompareKeys => f.write_str("rk_compare_keys"),
            Self::Read => f.write_str("rk_read"),
            Self::Copy => f.write_str("rk_copy"),
            Self::Decode(variant) => write!(f, "rk_decode_{}", variant.suffix()),
            Self::Extend(variant) => write!(f, "rk_extend_{}", variant.suffix()),
            Self::Cascade(variant) => write!(f, "rk_cascade_{}", variant.suffix()),
            Self::Merge(variant) => write!(f, "rk_merge_{}", variant.suffix()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_an_index_and_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for (index, kernel) in Kernel::all().enumerate() {
            assert_eq!(kernel.index(), index);
            assert!(names.insert(kernel.to_string()));
        }
    }
}
