// extend_wgmma: extend for compute capability 9.0, by products of warpgroups. Blocks of a multiple of 16 tokens, heads of 128 elements.
#include "plat.cuh"
#include "rows_wgmma.cuh"

#define RK_EXTEND_WGMMA(name, D, K) \
  RK_KERNEL(rk_extend_wgmma_##name, 384, 1)(const RkTileArgs a) { attend_rows_wgmma<D, K>(a); }
RK_EXTEND_WGMMA(bf16_d128, 128, Kind::BF16)
RK_EXTEND_WGMMA(f16_d128, 128, Kind::F16)
