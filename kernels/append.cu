// append: writes the K and V rows of new tokens into their slots.
#include "plat.cuh"

// A warp takes a token: 16 bytes of K and of V a lane at a time, four of each in flight.
RK_KERNEL(rk_append, 256, 4)(const RkAppendArgs a) {
  constexpr u32 AHEAD = 4;
  const u32 head_units = a.head_dim / 8, units = a.kv_heads * head_units, lane = RK_THREAD % 32;
  const u64 in_block = ((u64)1 << a.kv.block_shift) - 1;
  const u64 step = (u64)RK_BLOCKS_X * (RK_THREADS / 32);
  for (u64 token = (u64)RK_BLOCK_X * (RK_THREADS / 32) + RK_THREAD / 32; token < a.tokens; token += step) {
    const u64 slot = a.slot[token];
    if (slot == RK_SKIP) continue;
    RK_PROMISE(slot >> a.kv.block_shift < a.kv.blocks);
    const u64 to = (slot >> a.kv.block_shift) * a.kv.block_stride + (slot & in_block) * a.kv.token_stride;
    const u16* from_k = a.k + token * a.k_stride;
    const u16* from_v = a.v + token * a.v_stride;
    for (u32 first = lane; first < units; first += 32 * AHEAD) {
      rk_u4 k[AHEAD], v[AHEAD];
#pragma unroll
      for (u32 j = 0; j < AHEAD; ++j) {
        const u32 unit = first + j * 32;
        if (unit >= units) break;
        k[j] = rk_load_once((const rk_u4*)from_k + unit);
        v[j] = rk_load_once((const rk_u4*)from_v + unit);
      }
#pragma unroll
      for (u32 j = 0; j < AHEAD; ++j) {
        const u32 unit = first + j * 32;
        if (unit >= units) break;
        const u64 at = to + (u64)(unit / head_units) * a.kv.head_stride + unit % head_units * 8;
        *(rk_u4*)(a.kv.k + at) = k[j];
        *(rk_u4*)(a.kv.v + at) = v[j];
      }
    }
  }
}
