// decode: attention of one new token per sequence over paged KV. A block of threads takes one item of the plan.
#include "plat.cuh"
#include "item.cuh"

template <int D, bool BF16> RK_DEV void decode(const RkDecodeArgs& a) {
  const RkDecodeItem item = a.items[RK_BLOCK_X];
  if (item.kv_head == RK_IDLE) return;
  attend_item<D, BF16>(a, item);
}

RK_KERNEL(rk_decode_bf16_d128, 128, 2)(const RkDecodeArgs a) { decode<128, true>(a); }
RK_KERNEL(rk_decode_f16_d128, 128, 2)(const RkDecodeArgs a) { decode<128, false>(a); }
RK_KERNEL(rk_decode_bf16_d64, 128, 2)(const RkDecodeArgs a) { decode<64, true>(a); }
RK_KERNEL(rk_decode_f16_d64, 128, 2)(const RkDecodeArgs a) { decode<64, false>(a); }
