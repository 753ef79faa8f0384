// decode: attention of one new token per sequence over paged KV. A block of threads takes one item of the plan.
#include "plat.cuh"
#include "item.cuh"

template <int D, int V, Kind K, int HEADS> RK_DEV void decode(const RkDecodeArgs& a) {
  const RkDecodeItem item = a.items[RK_BLOCK_X];
  if (item.kv_head == RK_IDLE) return;
  attend_item<D, V, K, HEADS>(a, item);
}

#define RK_DECODE(name, D, V, K) \
  RK_KERNEL(rk_decode_##name, 128, 2)(const RkDecodeArgs a) { decode<D, V, K, 1>(a); }
RK_VARIANTS(RK_DECODE)

#define RK_DECODE_PAIR(name, D, V, K) \
  RK_KERNEL(rk_decode_##name##_pair, 128, 2)(const RkDecodeArgs a) { decode<D, V, K, 2>(a); }
RK_PAIRS(RK_DECODE_PAIR)
