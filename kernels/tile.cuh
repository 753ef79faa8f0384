// tile.cuh - shared by the attention kernels: where a block lies, how a tile is laid out in shared memory, how partial
// rows add up.
#pragma once

// Offset in K and V of the row of position `key`, which is in block `block`; the next rows of the block follow at
// token_stride.
RK_DEV u64 page_offset(const RkKv& kv, u32 block, u32 key, u32 kv_head) {
  RK_PROMISE(block < kv.blocks);
  const u32 in_block = key & ((1u << kv.block_shift) - 1);
  return (u64)block * kv.block_stride + (u64)in_block * kv.token_stride + (u64)kv_head * kv.head_stride;
}

// Element offset of 16-byte chunk `chunk` of row `row` in a tile of rows of D elements. Eight rows of one chunk column
// fall into eight different groups of banks, so that neither copies nor matrix loads conflict.
template <int D> RK_DEV u32 swizzled(u32 row, u32 chunk) { return row * D + ((chunk ^ (row & 7)) * 8); }

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

// o / sum in 16 bits; zeros for a row that saw no key.
template <bool BF16> RK_DEV rk_u2 quotient(const rk_f4& o, float sum) {
  const float r = sum > 0.f ? 1.f / sum : 0.f;
  return rk_u2{rk_pack<BF16>(o.x * r, o.y * r), rk_pack<BF16>(o.z * r, o.w * r)};
}

RK_DEV float log_sum(float max, float sum) { return sum > 0.f ? max + rk_log2(sum) : -RK_INF; }
