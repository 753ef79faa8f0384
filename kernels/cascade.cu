// cascade: attention of the sharers of a prefix over that prefix, which is read once for all of them. Their suffixes are
// decode items.
#include "plat.cuh"
#include "rows.cuh"

RK_KERNEL(rk_cascade_bf16_d128, 128, 2)(const RkTileArgs a) { attend_rows<128, true, Rows::SHARERS>(a); }
RK_KERNEL(rk_cascade_bf16_d64, 128, 2)(const RkTileArgs a) { attend_rows<64, true, Rows::SHARERS>(a); }
RK_KERNEL(rk_cascade_f16_d128, 128, 2)(const RkTileArgs a) { attend_rows<128, false, Rows::SHARERS>(a); }
RK_KERNEL(rk_cascade_f16_d64, 128, 2)(const RkTileArgs a) { attend_rows<64, false, Rows::SHARERS>(a); }
