//! The argument structs of the kernels, as `kernels/abi.cuh` declares them: same fields, same
//! order, same sizes.
#![allow(unsafe_code)]

use cudarc::driver::DeviceRepr;

/// In place of a partial row: the item is the only one for its rows, and writes the output itself.
pub(super) const DIRECT: u32 = u32::MAX;

/// In place of a head: a decode item with nothing to do.
pub(super) const IDLE: u32 = u32::MAX;

/// In place of a slot: the token is not written.
pub(super) const SKIP: u64 = u64::MAX;

/// In place of a number of keys: a row sees all keys before it.
pub(super) const NO_WINDOW: u32 = 1 << 31;

/// Keys or values of one layer; strides in elements.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Plane {
    pub(super) address: u64,
    pub(super) block_stride: u64,
    pub(super) token_stride: u32,
    pub(super) head_stride: u32,
    /// Address of the scales of 8-bit elements, or 0.
    pub(super) scale: u64,
}

/// Keys and values of one layer; strides of scales in floats.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerKv {
    pub(super) keys: Plane,
    pub(super) values: Plane,
    pub(super) scale_block_stride: u64,
    pub(super) scale_token_stride: u32,
    pub(super) scale_head_stride: u32,
    pub(super) block_tokens: u32,
    pub(super) blocks: u32,
}

/// The scoring of a layer, in log2 units. `sinks` and `slopes` are addresses of one number for each
/// query head, or 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoringArgs {
    pub(super) sinks: u64,
    pub(super) slopes: u64,
    pub(super) cap: f32,
    pub(super) cap_rate: f32,
    pub(super) window: u32,
    pub(super) pad: u32,
}

/// Keys `first..end` of one sequence, for the query heads of one KV head.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DecodeItem {
    pub(super) sequence: u32,
    pub(super) table: u32,
    pub(super) kv_head: u32,
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) part: u32,
    /// The number of keys up to the query's own, including it.
    pub(super) position: u32,
    pub(super) pad: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodeArgs {
    pub(super) kv: LayerKv,
    pub(super) scoring: ScoringArgs,
    pub(super) queries: u64,
    pub(super) out: u64,
    pub(super) lse: u64,
    pub(super) part_out: u64,
    pub(super) part_sums: u64,
    pub(super) table: u64,
    pub(super) items: u64,
    pub(super) items_len: u32,
    pub(super) query_heads: u32,
    pub(super) kv_heads: u32,
    pub(super) query_stride: u32,
    pub(super) scale_log2: f32,
    pub(super) lse_scale: f32,
}

/// Query rows that read the same keys `first..end`, at most as many as a tile of the variant has.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) table: u32,
    pub(super) kv_head: u32,
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) part: u32,
    pub(super) row_first: u32,
    pub(super) rows: u32,
    pub(super) query_first: u32,
    pub(super) visible: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct TileArgs {
    pub(super) kv: LayerKv,
    pub(super) scoring: ScoringArgs,
    pub(super) queries: u64,
    pub(super) out: u64,
    pub(super) lse: u64,
    pub(super) part_out: u64,
    pub(super) part_sums: u64,
    pub(super) table: u64,
    pub(super) tiles: u64,
    pub(super) members: u64,
    pub(super) contexts: u64,
    pub(super) trees: u64,
    pub(super) tiles_len: u32,
    pub(super) query_heads: u32,
    pub(super) kv_heads: u32,
    pub(super) query_stride: u32,
    pub(super) scale_log2: f32,
    pub(super) lse_scale: f32,
}

/// Output rows `row..row + rows`; row `row + r` is merged from the partial rows
/// `list[first..first + count] + r`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MergeItem {
    pub(super) row: u32,
    pub(super) rows: u32,
    pub(super) first: u32,
    pub(super) count: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct MergeArgs {
    pub(super) out: u64,
    pub(super) lse: u64,
    pub(super) part_out: u64,
    pub(super) part_sums: u64,
    pub(super) items: u64,
    pub(super) list: u64,
    pub(super) sinks: u64,
    pub(super) items_len: u32,
    pub(super) query_heads: u32,
    pub(super) lse_scale: f32,
    pub(super) pad: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct AppendArgs {
    pub(super) kv: LayerKv,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) slots: u64,
    pub(super) key_stride: u32,
    pub(super) value_stride: u32,
    pub(super) tokens: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) value_dim: u32,
    pub(super) static_scales: u32,
    pub(super) pad: u32,
}

/// The first `units` units of 16 bytes of each row of block `from`, to block `to`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CopyPair {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) units: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyArgs {
    pub(super) from_planes: u64,
    pub(super) to_planes: u64,
    pub(super) from_stride: u64,
    pub(super) to_stride: u64,
    pub(super) pairs: u64,
    pub(super) pairs_len: u32,
    pub(super) planes: u32,
    pub(super) rows: u32,
    pub(super) row_units: u32,
}

/// Tokens `first..first + len` of an array of tokens.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TokenRange {
    pub(super) first: u32,
    pub(super) len: u32,
}

/// Two token sequences, by index.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ComparePair {
    pub(super) a: u32,
    pub(super) b: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct CompareArgs {
    pub(super) a: u64,
    pub(super) a_runs: u64,
    pub(super) b: u64,
    pub(super) b_runs: u64,
    pub(super) pairs: u64,
    pub(super) out: u64,
    pub(super) pairs_len: u32,
    pub(super) pad: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct BandwidthArgs {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) units: u64,
}

/// The sizes that `abi.cuh` also asserts.
const _: () = {
    assert!(size_of::<Plane>() == 32);
    assert!(size_of::<LayerKv>() == 88);
    assert!(size_of::<ScoringArgs>() == 32);
    assert!(size_of::<DecodeItem>() == 32);
    assert!(size_of::<DecodeArgs>() == 200);
    assert!(size_of::<Tile>() == 36);
    assert!(size_of::<TileArgs>() == 224);
    assert!(size_of::<MergeItem>() == 16);
    assert!(size_of::<MergeArgs>() == 72);
    assert!(size_of::<AppendArgs>() == 144);
    assert!(size_of::<CopyPair>() == 12);
    assert!(size_of::<CopyArgs>() == 56);
    assert!(size_of::<TokenRange>() == 8);
    assert!(size_of::<ComparePair>() == 8);
    assert!(size_of::<CompareArgs>() == 56);
    assert!(size_of::<BandwidthArgs>() == 24);
};

macro_rules! device {
    ($($plain:ty)*) => {$(
        // SAFETY: plain numbers in C's layout, without implicit padding: passed to a kernel as they
        // are.
        unsafe impl DeviceRepr for $plain {}
    )*};
}
device!(DecodeArgs TileArgs MergeArgs AppendArgs CopyArgs CompareArgs BandwidthArgs);
device!(DecodeItem Tile MergeItem CopyPair TokenRange ComparePair);
