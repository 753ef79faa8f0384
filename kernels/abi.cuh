// abi.cuh - what the host passes to the kernels. Every kernel takes one of these structs by value; `abi.rs` of radixkv-cuda mirrors
// them, and both sides assert the sizes. Integers are little-endian, every address is a device address aligned to 16 bytes, every stride is counted
// in elements of 16 bits unless it says bytes.
#pragma once

#define RK_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "the host mirrors " #type " with another size")

// Keys and values of one layer: token t of block b, key-value head h, starts at
// b * block_stride + t * token_stride + h * head_stride. Every stride is a multiple of 8.
// NHD: token_stride = heads * D, head_stride = D. HND: token_stride = D, head_stride = block size * D.
struct RkKv {
  u16* k;              // 0
  u16* v;              // 8
  u64 block_stride;    // 16
  u32 token_stride;    // 24
  u32 head_stride;     // 28
  u32 block_shift;     // 32  tokens of a block = 1 << block_shift: 16, 32 or 64
  u32 blocks;          // 36  a block id at or above it is a fault of the host (the simulator aborts)
};
RK_SIZE(RkKv, 40);

// One block of threads of `decode`: keys [first, end) of one sequence for the query heads of one key-value head.
struct RkDecodeItem {
  u32 seq;             // 0   row of q and out
  u32 table;           // 4   index of the sequence's first block in the block table
  u32 kv_head;         // 8   or RK_IDLE: nothing to do
  u32 first, end;      // 12, 16  positions in the sequence; first is a multiple of 16; first == end is allowed
  u32 part;            // 20  first partial row (one for each query head of the group), or RK_DIRECT
};
RK_SIZE(RkDecodeItem, 24);

// In place of a partial row: the item is the only one of its rows, and writes out and lse itself.
#define RK_DIRECT 0xffffffffu

// In place of a head: the item is room that this step does not use. A grid that is recorded once has items for the largest step.
#define RK_IDLE 0xffffffffu

struct RkDecodeArgs {
  RkKv kv;                     // 0
  const u16* q;                // 40  [sequence][q_heads][D], q_stride between sequences
  u16* out;                    // 48  [sequence][q_heads][D]
  float* lse;                  // 56  [sequence][q_heads], or null
  float* part_o;               // 64  [row][D]: sum of exp2(score - max) * V, not normalised
  float* part_ml;              // 72  [row][2]: max of the scaled scores in log2 units, sum of exp2(score - max)
  const u32* table;            // 80  block ids, those of a sequence one after another
  const RkDecodeItem* items;   // 88  [items_len], one block of threads each
  u32 items_len;               // 96
  u32 q_heads, kv_heads;       // 100, 104  q_heads / kv_heads is 1 to 16
  u32 q_stride;                // 108
  float scale_log2;            // 112 softmax scale * log2(e); above zero
  float lse_scale;             // 116 1 gives lse in log2 units, ln(2) in natural ones
};
RK_SIZE(RkDecodeArgs, 120);

// One block of threads of `extend` or `cascade`: up to 128 query rows that read the same keys. Row r of the tile is row
// i = row_first + r of its (query token, query head of the group) pairs: token i / group, head i % group.
struct RkTile {
  u32 table;           // 0   index of the sequence's first block in the block table
  u32 kv_head;         // 4
  u32 first, end;      // 8, 12  key positions; first is a multiple of 16
  u32 part;            // 16  partial row of the tile's row 0, or RK_DIRECT (cascade: in tiles of one sequence alone)
  u32 row_first;       // 20
  u32 rows;            // 24  1 to 128. cascade: those of whole sequences
  u32 q_first;         // 28  extend: packed query token of pair-token 0. cascade: index into `members` of pair-token 0
  u32 visible;         // 32  pair-token t sees keys below min(end, visible + t); RK_ALL: all below end, as in cascade
};
RK_SIZE(RkTile, 36);

// In place of `visible`: no causal mask.
#define RK_ALL 0xffffffffu

struct RkTileArgs {
  RkKv kv;                     // 0
  const u16* q;                // 40  [query token][q_heads][D], q_stride between tokens
  u16* out;                    // 48  [query token][q_heads][D]
  float* lse;                  // 56  [query token][q_heads], or null
  float* part_o;               // 64  as in decode
  float* part_ml;              // 72
  const u32* table;            // 80
  const RkTile* tiles;         // 88  [tiles_len]
  const u32* members;          // 96  cascade: query token of each sequence. extend: null
  u32 tiles_len;               // 104
  u32 q_heads, kv_heads;       // 108, 112
  u32 q_stride;                // 116
  float scale_log2;            // 120
  float lse_scale;             // 124
};
RK_SIZE(RkTileArgs, 128);

// Merges the partial rows of `rows` neighbouring output rows: output row `row + r` is made of partial rows
// list[first + i] + r, i < count.
struct RkMergeItem {
  u32 row;             // 0   query token * q_heads + query head
  u32 rows;            // 4   1 to the grid's y; 0: nothing to do
  u32 first, count;    // 8, 12  range of `list`; count may be 0 (out = 0, lse = -inf)
};
RK_SIZE(RkMergeItem, 16);

struct RkMergeArgs {
  u16* out;                    // 0
  float* lse;                  // 8   or null
  const float* part_o;         // 16
  const float* part_ml;        // 24
  const RkMergeItem* items;    // 32
  const u32* list;             // 40
  u32 items_len;               // 48
  float lse_scale;             // 52
};
RK_SIZE(RkMergeArgs, 56);

struct RkAppendArgs {
  RkKv kv;                     // 0   its k and v are written
  const u16* k;                // 40  [token][kv_heads][head_dim], k_stride between tokens
  const u16* v;                // 48
  const u64* slot;             // 56  [token] block << block_shift | token in block; RK_SKIP writes nothing
  u32 k_stride, v_stride;      // 64, 68
  u32 tokens;                  // 72
  u32 kv_heads;                // 76
  u32 head_dim;                // 80  a multiple of 8
  u32 pad;                     // 84
};
RK_SIZE(RkAppendArgs, 88);

#define RK_SKIP 0xffffffffffffffffull

// Copies the first `units` 16-byte units of each row of block src to block dst, in every plane.
struct RkCopyPair { u32 src, dst, units; };
RK_SIZE(RkCopyPair, 12);

// A plane is one block's bytes of one layer's K or V: `rows` rows of row_units 16-byte units. A whole block: rows = 1,
// row_units = its size. The first tokens of an HND block: rows = heads, row_units = block size * D / 8, units =
// tokens * D / 8.
struct RkCopyArgs {
  const u64* src_planes;       // 0   [planes] address of block 0 in each plane, on the device or mapped into it
  const u64* dst_planes;       // 8
  u64 src_stride, dst_stride;  // 16, 24  bytes between blocks
  const RkCopyPair* pairs;     // 32
  u32 pairs_len;               // 40
  u32 planes;                  // 44
  u32 rows, row_units;         // 48, 52
};
RK_SIZE(RkCopyArgs, 56);

// A sequence of tokens: a[first .. first + len]. Those that start at a multiple of 4 are compared 16 bytes at a time.
struct RkRun { u32 first, len; };
RK_SIZE(RkRun, 8);

struct RkComparePair { u32 a, b; };  // indices into a_runs and b_runs
RK_SIZE(RkComparePair, 8);

struct RkCompareArgs {
  const u32* a;                // 0
  const RkRun* a_runs;         // 8
  const u32* b;                // 16
  const RkRun* b_runs;         // 24
  const RkComparePair* pairs;  // 32
  u32* out;                    // 40  [pairs_len] length of the longest common prefix
  u32 pairs_len;               // 48
  u32 pad;                     // 52
};
RK_SIZE(RkCompareArgs, 56);

// Bandwidth ceilings: rk_read reads `units` 16-byte units of src; rk_copy also writes them to dst. rk_empty does
// nothing.
struct RkBandwidthArgs {
  const void* src;             // 0
  void* dst;                   // 8   rk_read: null
  u64 units;                   // 16
};
RK_SIZE(RkBandwidthArgs, 24);

// rk_selftest: the results of each helper of plat.cuh on fixed inputs, a word of each of 32 lanes.
#define RK_SELFTEST_EXACT 32
#define RK_SELFTEST_WORDS ((RK_SELFTEST_EXACT + 2) * 32)
struct RkSelftestArgs {
  u32* out;                    // 0   [RK_SELFTEST_WORDS]
};
RK_SIZE(RkSelftestArgs, 8);
