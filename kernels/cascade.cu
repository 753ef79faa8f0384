// cascade: attention of the sharers of a prefix over that prefix, which is read once for all of them, and beside it of each
// sequence over the rest of its context. Prefixes keep the tensor cores busy, rests the memory: a multiprocessor that has
// one block of each does both at once.
#include "plat.cuh"
#include "item.cuh"
#include "rows.cuh"

template <int D, int V, Kind K> RK_DEV void cascade(const RkTileArgs& a) {
  const RkTile& tile = a.tiles[RK_BLOCK_X];
  const u32 group = a.q_heads / a.kv_heads;
  if (tile.rows > group) return attend_rows<D, V, K, Rows::SHARERS>(a);
  const u32 seq = (u32)row_place<Rows::SHARERS>(a, tile, group, 0).token;
  const u32 position = a.contexts[tile.q_first + tile.row_first / group];
  attend_item<D, V, K>(a, RkDecodeItem{seq, tile.table, tile.kv_head, tile.first, tile.end, tile.part, position, 0});
}

#define RK_CASCADE(name, D, V, K) \
  RK_KERNEL(rk_cascade_##name, 128, 2)(const RkTileArgs a) { cascade<D, V, K>(a); }
RK_VARIANTS(RK_CASCADE)
