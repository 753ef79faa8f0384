// tile.cuh - shared by the attention kernels: where a row lies, how a tile is laid out in shared memory, what is done to
// scores, how partial rows add up.
#pragma once
#include "element.cuh"

// Offset of the row of key-value head `kv_head` of token `in_block` of a block.
RK_DEV u64 page_offset(const RkKv& kv, const RkPlane& plane, u32 block, u32 in_block, u32 kv_head) {
  RK_PROMISE(block < kv.blocks && in_block < kv.block_tokens);
  return (u64)block * plane.block_stride + (u64)in_block * plane.token_stride + (u64)kv_head * plane.head_stride;
}

// The same of head 0 in units of 16 bytes, which fit 32 bits: what lanes tell each other where the table is looked up for
// each key.
template <u32 BYTES> RK_DEV u32 token_unit(const RkKv& kv, const RkPlane& plane, u32 block, u32 in_block) {
  return (u32)(page_offset(kv, plane, block, in_block, 0) * BYTES / 16);
}

RK_DEV u64 scale_offset(const RkKv& kv, u32 block, u32 in_block, u32 kv_head) {
  return block * kv.scale_block_stride + (u64)in_block * kv.scale_token_stride + (u64)kv_head * kv.scale_head_stride;
}

// Whether 16 keys from a multiple of 16 on lie in one block.
RK_DEV bool whole_tiles(const RkKv& kv) { return kv.block_tokens % 16 == 0; }

// A tile in shared memory, of rows of `ELEMENTS` of `BYTES` each: rows have as many 16-byte chunks as are there, filled up
// to 4 or a multiple of 8. Eight rows of one chunk column fall into eight different groups of banks, so that neither copies nor
// matrix loads conflict.
template <u32 ELEMENTS, u32 BYTES> struct TileLayout {
  static constexpr u32 CHUNKS = ELEMENTS * BYTES / 16;
  static constexpr u32 ROW = CHUNKS <= 4 ? 4 : (CHUNKS + 7) / 8 * 8;
  static constexpr u32 ROW_BYTES = ROW * 16;
  // Byte offset of a chunk of a row.
  static RK_DEV_METHOD u32 at(u32 row, u32 chunk) {
    return ROW == 4 ? row * ROW_BYTES + (chunk ^ (row >> 1 & 3)) * 16 : row * ROW_BYTES + (chunk ^ (row & 7)) * 16;
  }
  // Of the chunk `more` columns further, where `more` is a multiple of 2, from the offset of a chunk of column 0 or 1: constants but
  // for one exclusive-or.
  static RK_DEV_METHOD u32 further(u32 at, u32 more) {
    constexpr u32 SWIZZLED = ROW == 4 ? 4 : 8;
    return (at ^ more % SWIZZLED * 16) + more / SWIZZLED * SWIZZLED * 16;
  }
};

// cap * tanh(x / cap), to an error that is small beside the unit of scores.
RK_DEV float capped(const RkScoring& s, float x) {
  return s.cap - 2.f * s.cap * rk_reciprocal(rk_exp2(x * s.cap_rate) + 1.f);
}

// Factor that brings a part with maximum `max` to the common maximum `top` (log2 units). A part that saw no key has
// -inf, and factor 0.
RK_DEV float part_factor(float max, float top) { return max == -RK_INF ? 0.f : rk_exp2(max - top); }

RK_DEV void add_part(rk_f4& o, float& sum, const rk_f4& part_o, float part_sum, float factor) {
  sum = rk_fma(part_sum, factor, sum);
  o.x = rk_fma(part_o.x, factor, o.x);
  o.y = rk_fma(part_o.y, factor, o.y);
  o.z = rk_fma(part_o.z, factor, o.z);
  o.w = rk_fma(part_o.w, factor, o.w);
}

// Adds the sink of a query head to a row: returns what the row's values are multiplied by.
RK_DEV float add_sink(const float* sinks, u32 q_head, float& top, float& sum) {
  if (!sinks) return 1.f;
  const float sink = sinks[q_head], larger = sink > top ? sink : top;
  if (sink == -RK_INF) return 1.f;
  const float factor = part_factor(top, larger);
  sum = rk_fma(sum, factor, rk_exp2(sink - larger));
  top = larger;
  return factor;
}

// o / sum in 16 bits; zeros for a row that saw no key.
template <bool BF16> RK_DEV rk_u2 quotient(const rk_f4& o, float sum) {
  const float r = sum > 0.f ? 1.f / sum : sum == sum ? 0.f : sum;
  return rk_u2{rk_pack<BF16>(o.x * r, o.y * r), rk_pack<BF16>(o.z * r, o.w * r)};
}

RK_DEV float log_sum(float max, float sum) { return sum > 0.f ? max + rk_log2(sum) : sum == sum ? -RK_INF : sum; }
