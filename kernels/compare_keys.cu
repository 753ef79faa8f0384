// compare_keys: the length of the common prefix of many pairs of token sequences. Its keys are tokens.
#include "plat.cuh"

// First difference of 4 keys: its index, or 4.
RK_DEV u32 differs(const rk_u4& x, const rk_u4& y) {
  return x.x != y.x ? 0u : x.y != y.y ? 1u : x.z != y.z ? 2u : x.w != y.w ? 3u : 4u;
}

// Compares whole steps of 128 x U keys from *at on, 16 bytes a load, 2 x U loads in flight per lane. True if a difference
// was found, and *at is its index; else *at is where the next step would begin.
template <int U> RK_DEV bool compare_steps(const u32* a, const u32* b, u32 n, u32 lane, u32* at) {
  for (; *at + 128 * U <= n; *at += 128 * U) {
    rk_u4 x[U], y[U];
#pragma unroll
    for (int j = 0; j < U; ++j) {
      x[j] = rk_load_once((const rk_u4*)(a + *at) + 32 * j + lane);
      y[j] = rk_load_once((const rk_u4*)(b + *at) + 32 * j + lane);
    }
#pragma unroll
    for (int j = 0; j < U; ++j) {
      const u32 d = differs(x[j], y[j]), lanes = rk_ballot(d < 4);
      if (lanes) {
        const u32 who = rk_lowest_bit(lanes);
        *at += 128 * j + 4 * who + rk_shuffle(d, who);
        return true;
      }
    }
  }
  return false;
}

RK_DEV u32 common_prefix(const u32* a, const u32* b, u32 n, u32 lane) {
  u32 at = 0;
  const bool aligned = (((u64)a | (u64)b) & 15) == 0;
  if (aligned && (compare_steps<4>(a, b, n, lane, &at) || compare_steps<1>(a, b, n, lane, &at))) return at;
  for (; at < n; at += 32) {
    const u32 lanes = rk_ballot(at + lane < n && a[at + lane] != b[at + lane]);
    if (lanes) return at + rk_lowest_bit(lanes);
  }
  return n;
}

// A warp takes a pair.
RK_KERNEL(rk_compare_keys, 256, 4)(const RkCompareArgs a) {
  const u32 lane = RK_THREAD & 31, warps = RK_BLOCKS_X * 8;
  for (u32 p = RK_BLOCK_X * 8 + (RK_THREAD >> 5); p < a.pairs_len; p += warps) {
    const RkComparePair pair = a.pairs[p];
    const RkRun x = a.a_runs[pair.a], y = a.b_runs[pair.b];
    const u32 length = common_prefix(a.a + x.first, a.b + y.first, rk_min(x.len, y.len), lane);
    if (lane == 0) a.out[p] = length;
  }
}
