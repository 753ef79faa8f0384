// cascade: attention of the sharers of a prefix over that prefix, which is read once for all of them, and beside it of each
// sequence over the rest of its context. Prefixes keep the tensor cores busy, rests the memory: a multiprocessor that has
// one block of each does both at once.
#include "plat.cuh"
#include "item.cuh"
#include "rows.cuh"

template <int D, bool BF16> RK_DEV void cascade(const RkTileArgs& a) {
  const RkTile& tile = a.tiles[RK_BLOCK_X];
  const u32 group = a.q_heads / a.kv_heads;
  if (tile.rows > group) return attend_rows<D, BF16, Rows::SHARERS>(a);
  const u32 seq = (u32)row_place<Rows::SHARERS>(a, tile, group, 0).token;
  attend_item<D, BF16>(a, RkDecodeItem{seq, tile.table, tile.kv_head, tile.first, tile.end, tile.part});
}

RK_KERNEL(rk_cascade_bf16_d128, 128, 2)(const RkTileArgs a) { cascade<128, true>(a); }
RK_KERNEL(rk_cascade_bf16_d64, 128, 2)(const RkTileArgs a) { cascade<64, true>(a); }
RK_KERNEL(rk_cascade_f16_d128, 128, 2)(const RkTileArgs a) { cascade<128, false>(a); }
RK_KERNEL(rk_cascade_f16_d64, 128, 2)(const RkTileArgs a) { cascade<64, false>(a); }
