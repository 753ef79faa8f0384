// extend: causal attention of a chunk of new tokens over a paged prefix that ends in them (chunked prefill, speculation).
#include "plat.cuh"
#include "rows.cuh"

#define RK_EXTEND(name, D, V, K) \
  RK_KERNEL(rk_extend_##name, 128, 2)(const RkTileArgs a) { attend_rows<D, V, K, Rows::CHUNK>(a); }
RK_VARIANTS(RK_EXTEND)
