// append: writes the K and V rows of new tokens into their slots.
#include "plat.cuh"

// A thread takes two 16-byte units of K and the same two of V: four loads in flight.
RK_KERNEL(rk_append, 256, 4)(const RkAppendArgs a) {
  const u32 head_units = a.head_dim / 8, token_units = a.kv_heads * head_units;
  const u64 units = (u64)a.tokens * token_units, step = (u64)RK_BLOCKS_X * RK_THREADS;
  const u64 in_block = ((u64)1 << a.kv.block_shift) - 1;
  for (u64 i = (u64)RK_BLOCK_X * RK_THREADS + RK_THREAD; i < units; i += 2 * step) {
    rk_u4 k[2], v[2];
    u64 to[2];
    bool live[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const u64 unit = i + j * step;
      live[j] = unit < units;
      if (!live[j]) continue;
      const u32 token = (u32)(unit / token_units), rest = (u32)(unit % token_units);
      const u32 head = rest / head_units, at = rest % head_units * 8;
      const u64 slot = a.slot[token];
      live[j] = slot != RK_SKIP;
      if (!live[j]) continue;
      RK_PROMISE(slot >> a.kv.block_shift < a.kv.blocks);
      to[j] = (slot >> a.kv.block_shift) * a.kv.block_stride + (slot & in_block) * a.kv.token_stride +
              (u64)head * a.kv.head_stride + at;
      const u64 from = (u64)head * a.head_dim + at;
      k[j] = rk_load_once((const rk_u4*)(a.k + (u64)token * a.k_stride + from));
      v[j] = rk_load_once((const rk_u4*)(a.v + (u64)token * a.v_stride + from));
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (!live[j]) continue;
      *(rk_u4*)(a.kv.k + to[j]) = k[j];
      *(rk_u4*)(a.kv.v + to[j]) = v[j];
    }
  }
}
