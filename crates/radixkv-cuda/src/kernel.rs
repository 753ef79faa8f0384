//! The kernels: their names, the source file of each, and the thread blocks of each.

use std::fmt;
use std::ops::RangeInclusive;

use super::module::Module;
use radixkv_attention::{Dtype, Layout};

/// The soft-caps that the kernels compute: the error of a score is 2^-22 of the soft-cap, however
/// small the score is, and two divided by the soft-cap is finite.
pub(super) const SOFT_CAPS: RangeInclusive<f32> = f32::MIN_POSITIVE..=1024.0;

/// The most tokens of a sequence: the kernels subtract positions as 32-bit integers.
pub(super) const MOST_CONTEXT: u32 = i32::MAX as u32;

/// An element type of keys and values and the sizes of their heads, for which the attention kernels
/// are compiled.
///
/// ```
/// use radixkv_attention::Dtype;
/// use radixkv_cuda::Variant;
///
/// assert_eq!(Variant::of(Dtype::Bf16, 128, 128), Some(Variant::Bf16D128));
/// assert_eq!(Variant::of(Dtype::E4m3Static, 64, 64), Some(Variant::E4m3D64));
/// assert_eq!(Variant::of(Dtype::F32, 128, 128), None);
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
    /// `bf16`, heads of 96 elements.
    Bf16D96,
    /// `bf16`, heads of 192 elements.
    Bf16D192,
    /// `bf16`, heads of 192 elements of keys and of 128 of values.
    Bf16D192V128,
    /// `bf16`, heads of 256 elements.
    Bf16D256,
    /// `f16`, heads of 96 elements.
    F16D96,
    /// `f16`, heads of 192 elements.
    F16D192,
    /// `f16`, heads of 192 elements of keys and of 128 of values.
    F16D192V128,
    /// `f16`, heads of 256 elements.
    F16D256,
    /// 8-bit integers, heads of 64 elements; rows are `bf16`.
    I8D64,
    /// 8-bit integers, heads of 128 elements; rows are `bf16`.
    I8D128,
    /// `e4m3`, heads of 64 elements; rows are `bf16`.
    E4m3D64,
    /// `e4m3`, heads of 128 elements; rows are `bf16`.
    E4m3D128,
    /// Latent vectors of `bf16`, of 576 elements, of which the first 512 are the value.
    Bf16Latent,
    /// Latent vectors of `f16`, of 576 elements, of which the first 512 are the value.
    F16Latent,
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
    /// As `Append`, for 8-bit integers.
    AppendI8,
    /// As `Append`, for `e4m3`.
    AppendE4m3,
    /// Copies blocks, on the device or to and from page-locked memory.
    CopyBlocks,
    /// Finds the lengths of common prefixes of pairs of token sequences.
    CompareKeys,
    /// One query row of a sequence over a part of its context; over latent vectors, of up to 16
    /// query heads.
    Decode(Variant),
    /// As `Decode`, but a thread block takes two KV heads, with up to 8 query heads each.
    DecodePair(Variant),
    /// As `Decode` over latent vectors, of up to 32 query heads.
    DecodeWide(Variant),
    /// Rows of one sequence, causal.
    Extend(Variant),
    /// As `Extend`, by warpgroup matrix products, which compute capability 9.0 has.
    ExtendWgmma(Variant),
    /// Rows of several sequences over the prefix that they share, and of each over the rest of its
    /// context.
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
    /// Blocks that a multiprocessor of compute capability 9.0 runs concurrently.
    pub(super) blocks_at_once: u32,
}

/// What a variant is compiled for: the element type, elements of a head of keys and of one of
/// values, its name.
const VARIANTS: [(Variant, Dtype, usize, usize, &str); 18] = [
    (Variant::Bf16D64, Dtype::Bf16, 64, 64, "bf16_d64"),
    (Variant::Bf16D128, Dtype::Bf16, 128, 128, "bf16_d128"),
    (Variant::F16D64, Dtype::F16, 64, 64, "f16_d64"),
    (Variant::F16D128, Dtype::F16, 128, 128, "f16_d128"),
    (Variant::Bf16D96, Dtype::Bf16, 96, 96, "bf16_d96"),
    (Variant::Bf16D192, Dtype::Bf16, 192, 192, "bf16_d192"),
    (Variant::Bf16D192V128, Dtype::Bf16, 192, 128, "bf16_d192_128"),
    (Variant::Bf16D256, Dtype::Bf16, 256, 256, "bf16_d256"),
    (Variant::F16D96, Dtype::F16, 96, 96, "f16_d96"),
    (Variant::F16D192, Dtype::F16, 192, 192, "f16_d192"),
    (Variant::F16D192V128, Dtype::F16, 192, 128, "f16_d192_128"),
    (Variant::F16D256, Dtype::F16, 256, 256, "f16_d256"),
    (Variant::I8D64, Dtype::I8, 64, 64, "i8_d64"),
    (Variant::I8D128, Dtype::I8, 128, 128, "i8_d128"),
    (Variant::E4m3D64, Dtype::E4m3, 64, 64, "e4m3_d64"),
    (Variant::E4m3D128, Dtype::E4m3, 128, 128, "e4m3_d128"),
    (Variant::Bf16Latent, Dtype::Bf16, 576, 512, "latent_bf16"),
    (Variant::F16Latent, Dtype::F16, 576, 512, "latent_f16"),
];
/// Number of variants with KV heads, which come first.
const OF_HEADS: usize = Variant::Bf16Latent as usize;
/// The variants for which [`Kernel::ExtendWgmma`] is compiled.
const WGMMA: [Variant; 2] = [Variant::Bf16D128, Variant::F16D128];

/// The variants for which [`Kernel::DecodePair`] is compiled. It is 2 to 4 % faster than
/// [`Kernel::Decode`].
const PAIRS: [Variant; 2] = [Variant::I8D128, Variant::E4m3D128];
/// The most query heads for each head of a pair.
const PAIR_GROUP: usize = 8;

/// The most query heads of an item over latent vectors.
pub(super) const WIDE_HEADS: usize = 32;
const NARROW_HEADS: usize = 16;

/// Chunks of 16 bytes that a row takes in shared memory, padded as by `TileLayout` of the kernels.
fn row_chunks(elements: usize, bytes: usize) -> usize {
    match elements * bytes / 16 {
        few @ 0..=4 => few.max(4),
        chunks => chunks.next_multiple_of(8),
    }
}

impl Variant {
    /// The variant for this element type, with scales of either kind, and for heads of these sizes
    /// of keys and of values, if there is one. For latent vectors: [`latent`](Self::latent).
    pub fn of(dtype: Dtype, head_dim: usize, value_dim: usize) -> Option<Self> {
        let dtype = match dtype {
            Dtype::I8Static => Dtype::I8,
            Dtype::E4m3Static => Dtype::E4m3,
            other => other,
        };
        let fits = |(_, of, keys, values, _): &&(Self, Dtype, usize, usize, &str)| {
            (*of, *keys, *values) == (dtype, head_dim, value_dim)
        };
        VARIANTS[..OF_HEADS].iter().find(fits).map(|(variant, ..)| *variant)
    }

    /// The variant for latent vectors of `head_dim` elements of this type, of which the first
    /// `value_dim` are the value, if there is one.
    ///
    /// ```
    /// use radixkv_attention::Dtype;
    /// use radixkv_cuda::Variant;
    ///
    /// assert_eq!(Variant::latent(Dtype::Bf16, 576, 512), Some(Variant::Bf16Latent));
    /// assert_eq!(Variant::latent(Dtype::E4m3, 576, 512), None);
    /// ```
    pub fn latent(dtype: Dtype, head_dim: usize, value_dim: usize) -> Option<Self> {
        let fits = |(_, of, keys, values, _): &&(Self, Dtype, usize, usize, &str)| {
            (*of, *keys, *values) == (dtype, head_dim, value_dim)
        };
        VARIANTS[OF_HEADS..].iter().find(fits).map(|(variant, ..)| *variant)
    }

    /// The variant for a layout, if there is one.
    pub(super) fn of_layout(layout: &Layout) -> Option<Self> {
        let of = if layout.has_values() { Self::of } else { Self::latent };
        of(layout.dtype, layout.head_dim, layout.value_dim)
    }

    pub(super) fn is_latent(self) -> bool {
        self as usize >= OF_HEADS
    }

    /// The kernel that decodes `query_heads` query heads over `kv_heads` KV heads.
    pub(super) fn decode(self, query_heads: usize, kv_heads: usize) -> Kernel {
        match self.is_latent() {
            true if query_heads > NARROW_HEADS => Kernel::DecodeWide(self),
            false if self.has_pairs(query_heads, kv_heads) => Kernel::DecodePair(self),
            _ => Kernel::Decode(self),
        }
    }

    /// Whether a thread block decodes two KV heads.
    pub(super) fn has_pairs(self, query_heads: usize, kv_heads: usize) -> bool {
        PAIRS.contains(&self) && kv_heads.is_multiple_of(2) && query_heads / kv_heads <= PAIR_GROUP
    }

    /// Whether extend is compiled with warpgroup matrix products, for blocks of `block_size`
    /// tokens.
    pub(super) fn has_wgmma(self, block_size: usize) -> bool {
        WGMMA.contains(&self) && block_size.is_multiple_of(16)
    }

    fn row(self) -> (Dtype, usize, usize, &'static str) {
        let (_, dtype, keys, values, name) = VARIANTS[self as usize];
        (dtype, keys, values, name)
    }

    /// Type of queries, new keys and values, and outputs.
    pub(super) fn row_dtype(self) -> Dtype {
        match self.row().0 {
            Dtype::F16 => Dtype::F16,
            _ => Dtype::Bf16,
        }
    }

    /// The most query rows of a tile of [`Kernel::Extend`] and [`Kernel::Cascade`].
    pub(super) fn tile_rows(self) -> usize {
        if self.row().1 > 128 { 64 } else { 128 }
    }

    /// Shared memory of a thread block of `decode`: the rings of its warps, as in `DecodeShape` of
    /// the kernels.
    fn item_bytes(self) -> usize {
        let (dtype, keys, values, _) = self.row();
        let chunks = row_chunks(keys, dtype.bytes()) + row_chunks(values, dtype.bytes());
        let slot = 16 * 16 * chunks + if dtype.has_scales() { 128 } else { 0 };
        let warps = if chunks > 32 { 2 } else { 4 };
        let most = if dtype.has_scales() { 88 << 10 } else { 96 << 10 };
        most / (warps * slot) * warps * slot
    }

    /// Shared memory of a thread block that decodes two heads, as in `DecodeShape` of the kernels.
    fn pair_bytes(self) -> usize {
        let (dtype, keys, values, _) = self.row();
        let chunks = row_chunks(2 * keys, dtype.bytes()) + row_chunks(2 * values, dtype.bytes());
        let slots = 4 * (16 * 16 * chunks + 2 * 128);
        (99 << 10) / slots * slots
    }

    /// Shared memory of a thread block that decodes `heads` query heads over latent vectors, as in
    /// `LatentShape` of the kernels: two stages of 32 keys, products of four quarters, weights and
    /// factors.
    fn latent_bytes(self, heads: usize) -> usize {
        let (dtype, keys, _, _) = self.row();
        2 * 32 * 16 * row_chunks(keys, dtype.bytes())
            + 4 * heads * (32 + 8) * 4
            + heads * 16 * row_chunks(32, 2)
            + heads * 4
    }

    /// Shared memory of a thread block of `extend`, as in `RowsShape` of the kernels.
    fn rows_bytes(self) -> usize {
        let (dtype, keys, values, _) = self.row();
        let (rows, step) = (self.tile_rows(), self.tile_rows() / 2);
        let both = |bytes| 16 * (row_chunks(keys, bytes) + row_chunks(values, bytes));
        let scaled = |bytes| if dtype.has_scales() { step * bytes } else { 0 };
        let stage = step * both(dtype.bytes()) + scaled(8);
        rows * 16 * row_chunks(keys, 2) + scaled(both(2)) + 2 * stage + 3 * 4 * rows
    }

    /// Shared memory of a thread block of `extend_wgmma`, as in `HopperShape` of the kernels:
    /// queries, three stages of 128 keys and values, their barriers, and what rows see.
    fn wgmma_bytes(self) -> usize {
        let (dtype, keys, values, _) = self.row();
        let (rows, step, stages) = (self.tile_rows(), 128, 3);
        let row = |elements: usize| elements * dtype.bytes();
        rows * row(keys) + stages * (step * (row(keys) + row(values)) + 4 * 8) + 3 * 4 * rows
    }
}

impl Kernel {
    /// All kernels, in the order of [`index`](Self::index).
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let append = [Self::Append, Self::AppendI8, Self::AppendE4m3];
        let plain = [Self::CopyBlocks, Self::CompareKeys, Self::Read, Self::Copy];
        let of = |variant: Variant| match variant.is_latent() {
            true => vec![Self::Decode(variant), Self::DecodeWide(variant), Self::Merge(variant)],
            false => vec![Self::Decode(variant), Self::Extend(variant), Self::Cascade(variant), Self::Merge(variant)],
        };
        let of_variants = VARIANTS.into_iter().flat_map(move |(variant, ..)| of(variant));
        let of_some = WGMMA.map(Self::ExtendWgmma).into_iter().chain(PAIRS.map(Self::DecodePair));
        append.into_iter().chain(plain).chain(of_variants).chain(of_some)
    }

    /// Its index in [`all`](Self::all).
    pub(super) fn index(self) -> usize {
        let of = |nth: usize, variant: Variant| match (variant as usize).checked_sub(OF_HEADS) {
            Some(latent) => 7 + 4 * OF_HEADS + 3 * latent + nth,
            None => 7 + 4 * variant as usize + nth,
        };
        let of_all = 7 + 4 * OF_HEADS + 3 * (VARIANTS.len() - OF_HEADS);
        match self {
            Self::Append => 0,
            Self::AppendI8 => 1,
            Self::AppendE4m3 => 2,
            Self::CopyBlocks => 3,
            Self::CompareKeys => 4,
            Self::Read => 5,
            Self::Copy => 6,
            Self::Decode(variant) => of(0, variant),
            Self::Extend(variant) | Self::DecodeWide(variant) => of(1, variant),
            Self::Cascade(variant) => of(2, variant),
            Self::Merge(variant) => of(if variant.is_latent() { 2 } else { 3 }, variant),
            Self::ExtendWgmma(variant) => {
                of_all + WGMMA.iter().position(|of| *of == variant).unwrap_or(WGMMA.len() + PAIRS.len())
            }
            Self::DecodePair(variant) => {
                of_all + WGMMA.len() + PAIRS.iter().position(|of| *of == variant).unwrap_or(PAIRS.len())
            }
        }
    }

    /// The file it is compiled from.
    pub(super) fn module(self) -> Module {
        match self {
            Self::Append | Self::AppendI8 | Self::AppendE4m3 => Module::Append,
            Self::CopyBlocks => Module::CopyBlocks,
            Self::CompareKeys => Module::CompareKeys,
            Self::Decode(variant) if variant.is_latent() => Module::Latent,
            Self::DecodeWide(_) => Module::Latent,
            Self::Decode(_) | Self::DecodePair(_) => Module::Decode,
            Self::Extend(_) => Module::Extend,
            Self::ExtendWgmma(_) => Module::ExtendWgmma,
            Self::Cascade(_) => Module::Cascade,
            Self::Merge(_) => Module::Merge,
            Self::Read | Self::Copy => Module::Bandwidth,
        }
    }

    /// Whether another kernel computes the same if this one is missing.
    pub(super) fn has_another(self) -> bool {
        matches!(self, Self::ExtendWgmma(_))
    }

    /// The thread blocks of the kernel, as in `kernels/README.md`.
    pub(super) fn shape(self) -> LaunchShape {
        let plain = |threads, blocks_at_once| LaunchShape { threads, shared_bytes: 0, blocks_at_once };
        let tiles = |bytes: usize| LaunchShape { threads: 128, shared_bytes: bytes as u32, blocks_at_once: 2 };
        match self {
            Self::Append | Self::AppendI8 | Self::AppendE4m3 | Self::CopyBlocks | Self::CompareKeys => plain(256, 4),
            Self::Read | Self::Copy => plain(512, 2),
            Self::Merge(_) => plain(128, 16),
            Self::Decode(variant) if variant.is_latent() => tiles(variant.latent_bytes(NARROW_HEADS)),
            Self::DecodeWide(variant) => {
                LaunchShape { threads: 256, shared_bytes: variant.latent_bytes(WIDE_HEADS) as u32, blocks_at_once: 1 }
            }
            Self::Decode(variant) => tiles(variant.item_bytes()),
            Self::DecodePair(variant) => tiles(variant.pair_bytes()),
            Self::Extend(variant) => tiles(variant.rows_bytes()),
            Self::ExtendWgmma(variant) => {
                LaunchShape { threads: 384, shared_bytes: variant.wgmma_bytes() as u32, blocks_at_once: 1 }
            }
            Self::Cascade(variant) => tiles(variant.rows_bytes().max(variant.item_bytes())),
        }
    }
}

/// Its name in the image.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append => f.write_str("rk_append"),
            Self::AppendI8 => f.write_str("rk_append_i8"),
            Self::AppendE4m3 => f.write_str("rk_append_e4m3"),
            Self::CopyBlocks => f.write_str("rk_copy_blocks"),
            Self::CompareKeys => f.write_str("rk_compare_keys"),
            Self::Read => f.write_str("rk_read"),
            Self::Copy => f.write_str("rk_copy"),
            Self::Decode(variant) if variant.is_latent() => write!(f, "rk_{}_h16", variant.row().3),
            Self::DecodeWide(variant) => write!(f, "rk_{}_h32", variant.row().3),
            Self::Decode(variant) => write!(f, "rk_decode_{}", variant.row().3),
            Self::DecodePair(variant) => write!(f, "rk_decode_{}_pair", variant.row().3),
            Self::Extend(variant) => write!(f, "rk_extend_{}", variant.row().3),
            Self::ExtendWgmma(variant) => write!(f, "rk_extend_wgmma_{}", variant.row().3),
            Self::Cascade(variant) => write!(f, "rk_cascade_{}", variant.row().3),
            Self::Merge(variant) => write!(f, "rk_merge_{}_d{}", variant.row_dtype(), variant.row().2),
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
            // Variants of one output type and size of values are merged by the same one.
            assert!(names.insert(kernel.to_string()) || matches!(kernel, Kernel::Merge(_)));
        }
        VARIANTS.iter().enumerate().for_each(|(index, (variant, ..))| assert_eq!(*variant as usize, index));
    }

    /// A block has 99 KiB on every device that the kernels are compiled for, and 227 KiB with
    /// compute capability 9.0.
    #[test]
    fn shared_memory_fits_the_smallest_device() {
        let bytes = |kernel: Kernel| kernel.shape().shared_bytes;
        let most = |kernel: Kernel| if matches!(kernel, Kernel::ExtendWgmma(_)) { 227 << 10 } else { 99 << 10 };
        assert!(Kernel::all().all(|kernel| bytes(kernel) <= most(kernel)));
        assert_eq!(bytes(Kernel::ExtendWgmma(Variant::F16D128)), 231_008);
        assert_eq!(bytes(Kernel::Decode(Variant::Bf16D128)), 98_304);
        assert_eq!(bytes(Kernel::DecodePair(Variant::E4m3D128)), 101_376);
        assert_eq!(bytes(Kernel::Extend(Variant::Bf16D128)), 99_840);
        assert_eq!(bytes(Kernel::Decode(Variant::Bf16Latent)), 85_056);
        assert_eq!(bytes(Kernel::DecodeWide(Variant::F16Latent)), 96_384);
    }
}
