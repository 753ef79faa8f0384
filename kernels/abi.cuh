// abi.cuh - what the host passes to the kernels. Every kernel takes one of these structs by value; `abi.rs` of radixkv-cuda mirrors
// them, and both sides assert the sizes. Integers are little-endian, every address is a device address aligned to 16 bytes, every stride is counted
// in elements unless it says bytes.
#pragma once

#define RK_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "the host mirrors " #type " with another size")

// Keys or values of one layer: token t of block b, key-value head h, starts at element
// b * block_stride + t * token_stride + h * head_stride. Every stride is a multiple of 16 bytes.
// NHD: token_stride = heads * D, head_stride = D. HND: token_stride = D, head_stride = block size * D.
struct RkPlane {
  void* at;            // 0   elements of 16 or 8 bits
  u64 block_stride;    // 8
  u32 token_stride;    // 16
  u32 head_stride;     // 20
  float* scale;        // 24  elements of 8 bits: what they are multiplied by, at the strides below. Of 16 bits: null
};
RK_SIZE(RkPlane, 32);

struct RkKv {
  RkPlane k, v;              // 0, 32
  u64 scale_block_stride;    // 64  in floats, as are the two below. Static scales: 0 for blocks and for tokens
  u32 scale_token_stride;    // 72
  u32 scale_head_stride;     // 76
  u32 block_tokens;          // 80  tokens of a block: any number. Where it is a multiple of 16 the table is looked up for 16 keys at once
  u32 blocks;                // 84  a block id at or above it is a fault of the host (the simulator aborts)
};
RK_SIZE(RkKv, 88);

// What happens to scores between the product and the softmax, all of it in log2 units.
struct RkScoring {
  const float* sinks;        // 0   [q_heads] one more score of each row, without a value; or null
  const float* slopes;       // 8   [q_heads] what is taken from a score for each token between key and query; or null
  float cap;                 // 16  a score s becomes cap * tanh(s / cap); 0: it does not
  float cap_rate;            // 20  2 * log2(e) / cap
  u32 window;                // 24  keys that a row sees, its own and those right before it; RK_NO_WINDOW: all
  u32 pad;                   // 28
};
RK_SIZE(RkScoring, 32);

#define RK_NO_WINDOW 0x80000000u

// One block of threads of `decode`: keys [first, end) of one sequence for the query heads of one
// key-value head. Of `latent`: for some of the query heads, whose number is kv_head, and which are
// as many in each item.
struct RkDecodeItem {
  u32 seq;             // 0   row of q and out
  u32 table;           // 4   index of the sequence's first block in the block table
  u32 kv_head;         // 8   or RK_IDLE: nothing to do
  u32 first, end;      // 12, 16  positions in the sequence; first == end is allowed
  u32 part;            // 20  first partial row (one for each query head of the group), or RK_DIRECT
  u32 position;        // 24  of the query: the keys before it and its own are those below
  u32 pad;             // 28
};
RK_SIZE(RkDecodeItem, 32);

// In place of a partial row: the item is the only one of its rows, and writes out and lse itself.
#define RK_DIRECT 0xffffffffu

// In place of a head: the item is room that this step does not use. A grid that is recorded once has items for the largest step.
#define RK_IDLE 0xffffffffu

struct RkDecodeArgs {
  RkKv kv;                     // 0
  RkScoring scoring;           // 88
  const u16* q;                // 120 [sequence][q_heads][D], q_stride between sequences
  u16* out;                    // 128 [sequence][q_heads][D of values]
  float* lse;                  // 136 [sequence][q_heads], or null
  float* part_o;               // 144 [row][D of values]: sum of exp2(score - max) * V, not normalised
  float* part_ml;              // 152 [row][2]: max of the scores in log2 units, sum of exp2(score - max)
  const u32* table;            // 160 block ids, those of a sequence one after another
  const RkDecodeItem* items;   // 168 [items_len], one block of threads each
  u32 items_len;               // 176
  u32 q_heads, kv_heads;       // 180, 184  q_heads / kv_heads is 1 to 16. latent: kv_heads items have the heads of a sequence
  u32 q_stride;                // 188
  float scale_log2;            // 192 softmax scale * log2(e); above zero
  float lse_scale;             // 196 1 gives lse in log2 units, ln(2) in natural ones
};
RK_SIZE(RkDecodeArgs, 200);

// One block of threads of `extend` or `cascade`: up to 128 query rows (64 where heads have more than 128 elements) that read the same keys. Row r of the tile is row
// i = row_first + r of its (query token, query head of the group) pairs: token i / group, head i % group.
struct RkTile {
  u32 table;           // 0   index of the sequence's first block in the block table
  u32 kv_head;         // 4
  u32 first, end;      // 8, 12  key positions
  u32 part;            // 16  partial row of the tile's row 0, or RK_DIRECT (cascade: in tiles of one sequence alone)
  u32 row_first;       // 20
  u32 rows;            // 24  1 to 128. cascade: those of whole sequences
  u32 q_first;         // 28  extend: packed query token of pair-token 0. cascade: index into `members` of pair-token 0
  u32 visible;         // 32  extend: pair-token t is at position visible + t - 1, and sees no key behind it
};
RK_SIZE(RkTile, 36);

struct RkTileArgs {
  RkKv kv;                     // 0
  RkScoring scoring;           // 88
  const u16* q;                // 120 [query token][q_heads][D], q_stride between tokens
  u16* out;                    // 128 [query token][q_heads][D of values]
  float* lse;                  // 136 [query token][q_heads], or null
  float* part_o;               // 144 as in decode
  float* part_ml;              // 152
  const u32* table;            // 160
  const RkTile* tiles;         // 168 [tiles_len]
  const u32* members;          // 176 cascade: query token of each sequence. extend: null
  const u32* contexts;         // 184 cascade: tokens of each sequence, its query among them. extend: null
  const u32* trees;            // 192 extend: a mask of each query token, or null: bit i: it sees the i-th new token of its sequence
  u32 tiles_len;               // 200
  u32 q_heads, kv_heads;       // 204, 208
  u32 q_stride;                // 212
  float scale_log2;            // 216
  float lse_scale;             // 220
};
RK_SIZE(RkTileArgs, 224);

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
  const float* sinks;          // 48  as in RkScoring
  u32 items_len;               // 56
  u32 q_heads;                 // 60
  float lse_scale;             // 64
  u32 pad;                     // 68
};
RK_SIZE(RkMergeArgs, 72);

struct RkAppendArgs {
  RkKv kv;                     // 0   its k and v are written
  const u16* k;                // 88  [token][kv_heads][head_dim], k_stride between tokens
  const u16* v;                // 96  [token][kv_heads][value_dim]
  const u64* slot;             // 104 [token] block * block_tokens + token in block; RK_SKIP writes nothing
  u32 k_stride, v_stride;      // 112, 116
  u32 tokens;                  // 120
  u32 kv_heads;                // 124
  u32 head_dim, value_dim;     // 128, 132  multiples of 8; into elements of 8 bits of 16, 256 at most
  u32 static_scales;           // 136 elements of 8 bits: 0: the scale of each row is computed, and written; 1: it is there
  u32 pad;                     // 140
};
RK_SIZE(RkAppendArgs, 144);

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
#define RK_SELFTEST_EXACT 44
#define RK_SELFTEST_WORDS ((RK_SELFTEST_EXACT + 3) * 32)
struct RkSelftestArgs {
  u32* out;                    // 0   [RK_SELFTEST_WORDS]
};
RK_SIZE(RkSelftestArgs, 8);
