// append: writes the K and V rows of new tokens into their slots.
#include "plat.cuh"
#include "element.cuh"

struct SlotPlace { u64 block; u32 in_block; };

RK_DEV SlotPlace slot_place(const RkKv& kv, u64 slot) {
  RK_PROMISE(slot / kv.block_tokens < kv.blocks);
  return {slot / kv.block_tokens, (u32)(slot % kv.block_tokens)};
}

// Where 16 bytes of a token's row go.
RK_DEV rk_u4* unit_place(const RkPlane& plane, const SlotPlace& place, u32 unit, u32 head_units) {
  return (rk_u4*)((u16*)plane.at + place.block * plane.block_stride + (u64)place.in_block * plane.token_stride +
                  (u64)(unit / head_units) * plane.head_stride + unit % head_units * 8);
}

// A warp takes a token: 16 bytes of K and of V a lane at a time, four of each in flight.
RK_KERNEL(rk_append, 256, 4)(const RkAppendArgs a) {
  constexpr u32 AHEAD = 4;
  const u32 key_units = a.head_dim / 8, value_units = a.value_dim / 8, lane = RK_THREAD % 32;
  const u32 keys = a.kv_heads * key_units, values = a.kv_heads * value_units;
  const u64 step = (u64)RK_BLOCKS_X * (RK_THREADS / 32);
  for (u64 token = (u64)RK_BLOCK_X * (RK_THREADS / 32) + RK_THREAD / 32; token < a.tokens; token += step) {
    const u64 slot = a.slot[token];
    if (slot == RK_SKIP) continue;
    const SlotPlace place = slot_place(a.kv, slot);
    const rk_u4* from_k = (const rk_u4*)(a.k + token * a.k_stride);
    const rk_u4* from_v = (const rk_u4*)(a.v + token * a.v_stride);
    for (u32 first = lane; first < keys || first < values; first += 32 * AHEAD) {
      rk_u4 k[AHEAD], v[AHEAD];
#pragma unroll
      for (u32 j = 0; j < AHEAD; ++j) {
        const u32 unit = first + j * 32;
        if (unit < keys) k[j] = rk_load_once(from_k + unit);
        if (unit < values) v[j] = rk_load_once(from_v + unit);
      }
#pragma unroll
      for (u32 j = 0; j < AHEAD; ++j) {
        const u32 unit = first + j * 32;
        if (unit < keys) *unit_place(a.kv.k, place, unit, key_units) = k[j];
        if (unit < values) *unit_place(a.kv.v, place, unit, value_units) = v[j];
      }
    }
  }
}

// The bf16 row of a head, at most 256 elements, to one of 8 bits: eight elements a lane. Its scale is the largest magnitude divided
// by the largest number of 8 bits, or was given.
template <Kind K> RK_DEV void quantize_row(const RkPlane& plane, const SlotPlace& place, const RkAppendArgs& a, const u16* from, u32 dim,
                                           u32 head, u32 lane) {
  const bool mine = lane * 8 < dim;
  const rk_u4 row = mine ? rk_load_once((const rk_u4*)from + lane) : rk_u4{0, 0, 0, 0};
  const u32 pairs[4] = {row.x, row.y, row.z, row.w};
  float* const at = plane.scale + place.block * a.kv.scale_block_stride + (u64)place.in_block * a.kv.scale_token_stride +
                    (u64)head * a.kv.scale_head_stride;
  float scale;
  if (a.static_scales) {
    scale = *at;
  } else {
    u32 largest = 0;                                        // as bits: then NaN is above infinity, and that above all numbers
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 low = pairs[i] << 16 & 0x7fffffffu, high = pairs[i] & 0x7fff0000u;
      largest = largest > low ? largest : low;
      largest = largest > high ? largest : high;
    }
#pragma unroll
    for (u32 by = 16; by > 0; by /= 2) {
      const u32 other = rk_shuffle(largest, lane ^ by);
      largest = largest > other ? largest : other;
    }
    scale = as_float(largest) / most<K>();
    if (K == Kind::E4M3 && scale == 0.f) scale = 1.f;
    if (lane == 0) *at = scale;
  }
  if (!mine) return;
  u32 bytes[2] = {0, 0};
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const float x = i % 2 ? high_bf16(pairs[i / 2]) : low_bf16(pairs[i / 2]);
    bytes[i / 4] |= narrow<K>(x / scale) << (i % 4 * 8);
  }
  u8* const to = (u8*)plane.at + place.block * plane.block_stride + (u64)place.in_block * plane.token_stride +
                 (u64)head * plane.head_stride;
  *(rk_u2*)(to + lane * 8) = rk_u2{bytes[0], bytes[1]};
}

// A warp takes one head of a token.
template <Kind K> RK_DEV void append_scaled(const RkAppendArgs& a) {
  const u32 lane = RK_THREAD % 32;
  const u64 step = (u64)RK_BLOCKS_X * (RK_THREADS / 32), rows = (u64)a.tokens * a.kv_heads;
  for (u64 row = (u64)RK_BLOCK_X * (RK_THREADS / 32) + RK_THREAD / 32; row < rows; row += step) {
    const u64 token = row / a.kv_heads, slot = a.slot[token];
    const u32 head = (u32)(row % a.kv_heads);
    if (slot == RK_SKIP) continue;
    const SlotPlace place = slot_place(a.kv, slot);
    quantize_row<K>(a.kv.k, place, a, a.k + token * a.k_stride + (u64)head * a.head_dim, a.head_dim, head, lane);
    quantize_row<K>(a.kv.v, place, a, a.v + token * a.v_stride + (u64)head * a.value_dim, a.value_dim, head, lane);
  }
}

RK_KERNEL(rk_append_i8, 256, 4)(const RkAppendArgs a) { append_scaled<Kind::I8>(a); }
RK_KERNEL(rk_append_e4m3, 256, 4)(const RkAppendArgs a) { append_scaled<Kind::E4M3>(a); }
