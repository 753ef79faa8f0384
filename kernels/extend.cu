// extend: causal attention of a chunk of new tokens over a paged prefix that ends in them (chunked prefill).
#include "plat.cuh"
#include "rows.cuh"

RK_KERNEL(rk_extend_bf16_d128, 128, 2)(const RkTileArgs a) { attend_rows<128, true, Rows::CHUNK>(a); }
RK_KERNEL(rk_extend_bf16_d64, 128, 2)(const RkTileArgs a) { attend_rows<64, true, Rows::CHUNK>(a); }
RK_KERNEL(rk_extend_f16_d128, 128, 2)(const RkTileArgs a) { attend_rows<128, false, Rows::CHUNK>(a); }
RK_KERNEL(rk_extend_f16_d64, 128, 2)(const RkTileArgs a) { attend_rows<64, false, Rows::CHUNK>(a); }
