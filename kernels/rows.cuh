// rows.cuh - attention of a tile of up to 128 query rows over the same keys: the body of `extend`, and of
// the tiles of `cascade` that are sharers'; they differ in where a row's query lies.
// Four warps hold 32 rows each; keys come 64 at a time through two stages of shared memory. A step waits for its keys,
// passes one barrier, starts the copies of the next step and computes. Heads of more than 128 elements: 16 rows, 32 keys.
// Elements of 8 bits pass through two stages too, and are made 16 bits wide at the beginning of their step: keys as they are,
// since a rounded key would shift large scores, values times their scales.
#pragma once
#include "tile.cuh"

enum class Rows { CHUNK, SHARERS };

// Heads of D elements of keys, and of V of values.
template <int D, int V, Kind K> struct RowsShape {
  using E = Element<K>;
  using Keys = TileLayout<D, 2>;                            // as products need them, and of queries
  using Values = TileLayout<V, 2>;
  using KeysIn = TileLayout<D, E::BYTES>;                   // as they are copied
  using ValuesIn = TileLayout<V, E::BYTES>;
  static constexpr u32 THREADS = 128;
  static constexpr u32 BLOCKS = D > 128 ? 1 : 2;            // of 16 rows, of a warp
  static constexpr u32 ROWS = 64 * BLOCKS;
  static constexpr u32 KEYS = 32 * BLOCKS;                  // of a step
  static constexpr u32 KEYS_IN = KEYS * KeysIn::ROW_BYTES, VALUES_IN = KEYS * ValuesIn::ROW_BYTES;
  static constexpr u32 SCALES = E::SCALED ? KEYS * 8 : 0;   // of keys, then of values
  static constexpr u32 STAGE = KEYS_IN + VALUES_IN + SCALES;
  static constexpr u32 Q_BYTES = ROWS * Keys::ROW_BYTES;
  static constexpr u32 WIDE = E::SCALED ? KEYS * (Keys::ROW_BYTES + Values::ROW_BYTES) : 0;
  static constexpr u32 SHARED = Q_BYTES + WIDE + 2 * STAGE + 3 * ROWS * 4;
};

// Query token and head of one row of the tile.
struct RowPlace { u64 token; u32 head; };

template <Rows KIND> RK_DEV RowPlace row_place(const RkTileArgs& a, const RkTile& tile, u32 group, u32 row) {
  const u32 i = tile.row_first + row, at = tile.q_first + i / group;
  return {KIND == Rows::SHARERS ? a.members[at] : at, tile.kv_head * group + i % group};
}

// Bit i for each key before + i that lies before `key`, of 32.
RK_DEV u32 bits_below(u32 key, u32 before) {
  return key <= before ? 0 : key - before >= 32 ? 0xffffffffu : (1u << (key - before)) - 1;
}

// What a row sees: keys below `limit`, and not those more than the window before `position`; from `limit` on those of `tree`.
struct RowView { u32 limit, position, tree; };

template <Rows KIND> RK_DEV RowView row_view(const RkTileArgs& a, const RkTile& tile, u32 group, u32 row) {
  const u32 token = (tile.row_first + row) / group;
  if (KIND == Rows::SHARERS) return {tile.end, a.contexts[tile.q_first + token], 0};
  if (a.trees) {
    const u32 tree = a.trees[tile.q_first + token], before = tile.visible - 1;
    const u32 of_tile = bits_below(tile.end, before) & ~bits_below(tile.first, before);
    return {rk_min(tile.end, before), before + rk_count_bits(tree), tree & of_tile};
  }
  return {rk_min(tile.end, tile.visible + token), tile.visible + token, 0};
}

// The copies belong to the group that is ended next.
template <int D, int V, Kind K, Rows KIND> RK_DEV void copy_queries(const RkTileArgs& a, const RkTile& tile, u32 group, u8* q) {
  using S = RowsShape<D, V, K>;
  using L = typename S::Keys;
#pragma unroll 1
  for (u32 unit = RK_THREAD; unit < S::ROWS * L::CHUNKS; unit += S::THREADS) {
    const u32 row = unit / L::CHUNKS, chunk = unit % L::CHUNKS;
    const bool valid = row < tile.rows;
    const u16* from = a.q;
    if (valid) {
      const RowPlace place = row_place<KIND>(a, tile, group, row);
      from += place.token * a.q_stride + (u64)place.head * D + chunk * 8;
    }
    rk_copy_async(q + L::at(row, chunk), from, valid);
  }
}

// Copies the keys and values of a step into shared memory. Where 16 keys lie in one block each lane holds the table entry of one of the
// next 32 groups of 16; otherwise the table is looked up for each key.
template <int D, int V, Kind K> struct Pages {
  using S = RowsShape<D, V, K>;
  using E = Element<K>;
  const RkTileArgs& a;
  u32 base, first, end;
  u32 blocks;

  static constexpr bool EVEN = S::THREADS / S::KeysIn::CHUNKS * S::KeysIn::CHUNKS == S::THREADS &&
                               S::THREADS / S::ValuesIn::CHUNKS * S::ValuesIn::CHUNKS == S::THREADS;

  // 16 rows from `row` of the step on, which begin at `page`.
  template <class L> RK_DEV_METHOD void copy_rows(u8* to, const RkPlane& plane, u64 page, u32 row, u32 key) const {
    constexpr u32 PASS = S::THREADS / L::CHUNKS;            // rows that the block copies at once
    const u32 thread = rk_anew(RK_THREAD), chunk = thread % L::CHUNKS, row0 = thread / L::CHUNKS;
    const u8* from = (const u8*)plane.at + (page + (u64)row0 * plane.token_stride) * E::BYTES + chunk * 16;
    const int left = (int)(end - key) - (int)row0, before = (int)(first - key) - (int)row0;
#pragma unroll
    for (u32 j = 0; j < 16; j += PASS) {
      if (PASS > 16 && row0 >= 16) break;
      const bool valid = (int)j < left && (int)j >= before; // another slot may hold NaN, and 0 * NaN is NaN
      // The swizzle comes round every eight rows.
      const u32 at = PASS % 8 == 0 ? L::at(row0 + row, chunk) + j * L::ROW_BYTES : L::at(row0 + row + j, chunk);
      rk_copy_async(to + at, from + (u64)j * plane.token_stride * E::BYTES, valid);
    }
  }
  // 32 rows anywhere: lane r has the unit of row `row + r`.
  template <class L> RK_DEV_METHOD void copy_tokens(u8* to, const RkPlane& plane, u32 mine, u32 row, u32 key, u32 kv_head) const {
    const u8* from = (const u8*)plane.at + (u64)kv_head * plane.head_stride * E::BYTES;
#pragma unroll 1
    for (u32 unit = RK_THREAD; unit < 32 * L::CHUNKS; unit += S::THREADS) {
      const u32 r = unit / L::CHUNKS, chunk = unit % L::CHUNKS;
      const u64 at = (u64)rk_shuffle(mine, r) * 16;
      rk_copy_async(to + L::at(row + r, chunk), from + at + chunk * 16, key + r < end);
    }
  }
  // The scale of one key or value, by one thread.
  RK_DEV_METHOD void copy_scale(u8* to, u64 offset, bool of_values, u32 row, u32 key) const {
    const float* from = (of_values ? a.kv.v.scale : a.kv.k.scale) + offset;
    rk_copy_async_word(to + (of_values * S::KEYS + row) * 4, from, key >= first && key < end);
  }

  RK_DEV_METHOD void copy_whole_tiles(u32 step, u8* k, const RkTile& tile) {
    const u32 key = base + step * S::KEYS, lane = RK_THREAD % 32;
    constexpr u32 GROUPS = S::KEYS / 16;
    if (step % (32 / GROUPS) == 0 && key + lane * 16 < end)
      blocks = a.table[tile.table + (key + lane * 16) / a.kv.block_tokens];
    u32 in_block = key % a.kv.block_tokens;
#pragma unroll
    for (u32 i = 0; i < GROUPS; ++i) {
      // Behind the end it is a block of before, or the first one: nothing of it is read.
      const u32 block = rk_shuffle(blocks, step % (32 / GROUPS) * GROUPS + i);
      copy_rows<typename S::KeysIn>(k, a.kv.k, page_offset(a.kv, a.kv.k, block, in_block, tile.kv_head), i * 16, key + i * 16);
      copy_rows<typename S::ValuesIn>(k + S::KEYS_IN, a.kv.v, page_offset(a.kv, a.kv.v, block, in_block, tile.kv_head), i * 16,
                                      key + i * 16);
      // A warp has the scales of a group.
      if (E::SCALED && RK_THREAD / 32 == i)
        copy_scale(k + S::KEYS_IN + S::VALUES_IN, scale_offset(a.kv, block, in_block + lane % 16, tile.kv_head), lane >= 16,
                   i * 16 + lane % 16, key + i * 16 + lane % 16);
      in_block += 16;
      if (in_block == a.kv.block_tokens) in_block = 0;
    }
  }

  RK_DEV_METHOD void copy_each_token(u32 step, u8* k, const RkTile& tile) const {
    const u32 key = base + step * S::KEYS, lane = RK_THREAD % 32;
#pragma unroll 1
    for (u32 row = 0; row < S::KEYS; row += 32) {
      const u32 mine = key + row + lane, in_block = mine % a.kv.block_tokens;
      const u32 block = mine < end ? a.table[tile.table + mine / a.kv.block_tokens] : 0;
      copy_tokens<typename S::KeysIn>(k, a.kv.k, token_unit<E::BYTES>(a.kv, a.kv.k, block, in_block), row, key + row, tile.kv_head);
      copy_tokens<typename S::ValuesIn>(k + S::KEYS_IN, a.kv.v, token_unit<E::BYTES>(a.kv, a.kv.v, block, in_block), row,
                                        key + row, tile.kv_head);
      // The first warp has those of keys, the second one those of values.
      if (E::SCALED && RK_THREAD < 64)
        copy_scale(k + S::KEYS_IN + S::VALUES_IN, scale_offset(a.kv, block, in_block, tile.kv_head), RK_THREAD >= 32, row + lane, mine);
    }
  }

  // Starts the copies of step `step`; steps count up from 0 without gaps, and the whole block calls.
  RK_DEV_METHOD void copy(u32 step, u8* k) {
    const RkTile& tile = a.tiles[RK_BLOCK_X];               // read again: no register holds it
    if (EVEN && whole_tiles(a.kv)) copy_whole_tiles(step, k, tile);
    else copy_each_token(step, k, tile);
    rk_copy_commit();
  }
};

// Four bytes as two pairs of bf16.
template <Kind K> RK_DEV rk_u2 wide_keys(u32 w) {
  u32 even, odd;
  widen<K>(w, even, odd);
  return rk_u2{(even & 0xffff) | odd << 16, even >> 16 | (odd & 0xffff0000u)};
}
template <Kind K> RK_DEV rk_u2 wide_values(u32 w, float scale) {
  u32 even, odd;
  widen<K>(w, even, odd);
  return rk_u2{rk_pack<true>(low_bf16(even) * scale, low_bf16(odd) * scale),
               rk_pack<true>(high_bf16(even) * scale, high_bf16(odd) * scale)};
}

// Makes the elements of a stage 16 bits wide; those of values times their scales.
template <class In, class Out, Kind K, bool VALUES> RK_DEV void widen_rows(const u8* from, const float* scales, u32 rows, u8* to) {
#pragma unroll 1
  for (u32 unit = RK_THREAD; unit < rows * In::CHUNKS; unit += 128) {
    const u32 row = unit / In::CHUNKS, chunk = unit % In::CHUNKS;
    const rk_u4 in = *(const rk_u4*)(from + In::at(row, chunk));
    const auto pairs = [&](u32 word) { return VALUES ? wide_values<K>(word, scales[row]) : wide_keys<K>(word); };
    const rk_u2 x = pairs(in.x), y = pairs(in.y), z = pairs(in.z), w = pairs(in.w);
    *(rk_u4*)(to + Out::at(row, chunk * 2)) = rk_u4{x.x, x.y, y.x, y.y};
    *(rk_u4*)(to + Out::at(row, chunk * 2 + 1)) = rk_u4{z.x, z.y, w.x, w.y};
  }
}

// The state of a warp's rows, tiles of 16; a thread has those at lane / 4 + 8 * {0, 1, ...}.
template <int D, int V, Kind K> struct RowsState {
  static constexpr u32 M = RowsShape<D, V, K>::BLOCKS;
  float o[M][V / 8][4];
  float max[2 * M];        // of the scores, or up to ROOM below it
  float sum[2 * M];
};

template <int D, Kind K, u32 M, u32 N> RK_DEV void scores(const u8* q, const u8* k, u32 lane, float (&s)[M][N][4]) {
  using L = TileLayout<D, 2>;
#pragma unroll
  for (u32 m = 0; m < M; ++m)
#pragma unroll
    for (u32 n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0.f;
  const u32 at_q = L::at(lane % 16, lane / 16), at_k = L::at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (u32 d = 0; d < D / 16; ++d) {
    u32 rows[M][4];
#pragma unroll
    for (u32 m = 0; m < M; ++m) rk_load_matrix(rows[m], q + L::further(at_q, d * 2) + m * 16 * L::ROW_BYTES);
#pragma unroll
    for (u32 n = 0; n < N / 2; ++n) {
      u32 keys[4];
      rk_load_matrix(keys, k + L::further(at_k, d * 2) + n * 16 * L::ROW_BYTES);
#pragma unroll
      for (u32 m = 0; m < M; ++m) {
        rk_mma<Element<K>::BF16>(s[m][n * 2], rows[m], keys[0], keys[1]);
        rk_mma<Element<K>::BF16>(s[m][n * 2 + 1], rows[m], keys[2], keys[3]);
      }
    }
  }
}

// Products with keys of 8 bits, times the scales of these.
template <u32 M, u32 N> RK_DEV void scale_scores(const float* scales, u32 lane, float (&s)[M][N][4]) {
#pragma unroll
  for (u32 n = 0; n < N; ++n) {
    const rk_f2 of = *(const rk_f2*)(scales + n * 8 + lane % 4 * 2);
#pragma unroll
    for (u32 m = 0; m < M; ++m) {
      s[m][n][0] *= of.x; s[m][n][1] *= of.y;
      s[m][n][2] *= of.x; s[m][n][3] *= of.y;
    }
  }
}

// Soft-cap and slopes; scores are in log2 units before and after. `row`: the thread's first row of the tile.
template <u32 M, u32 N>
RK_DEV void score_rows(const RkTileArgs& a, const u32* positions, u32 row, u32 key0, u32 lane, float (&s)[M][N][4]) {
  const bool slopes = a.scoring.slopes != nullptr;
#pragma unroll
  for (u32 m = 0; m < M; ++m)
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      const RkTile& tile = a.tiles[RK_BLOCK_X];
      const u32 group = a.q_heads / a.kv_heads, at = row + m * 16 + r * 8;
      const u32 head = tile.kv_head * group + (tile.row_first + at) % group;
      const float slope = slopes ? a.scoring.slopes[head] : 0.f;
      const int away = (int)(positions[at] - 1 - key0 - lane % 4 * 2);
#pragma unroll
      for (u32 n = 0; n < N; ++n)
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          float& x = s[m][n][r * 2 + i];
          x *= a.scale_log2;
          if (a.scoring.cap != 0.f) x = capped(a.scoring, x);
          if (slopes) x = rk_fma(-slope, (float)(away - (int)(n * 8 + i)), x);
        }
    }
}

// `views`: limits, positions and trees of the tile's rows. `first`: of the tile's keys. `row`: the thread's first row.
template <u32 ROWS, u32 M, u32 N>
RK_DEV void mask_scores(const u32* views, u32 first, u32 window, u32 row, u32 key0, u32 lane, float (&s)[M][N][4]) {
#pragma unroll
  for (u32 m = 0; m < M; ++m)
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      const u32* view = views + row + m * 16 + r * 8;
      const u32 limit = view[0], position = view[ROWS], tree = view[2 * ROWS];
#pragma unroll
      for (u32 n = 0; n < N; ++n)
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          const u32 key = key0 + n * 8 + lane % 4 * 2 + i;
          const bool in_tree = key >= limit && key - limit < 32 && (tree >> (key - limit) & 1) != 0;
          const bool seen = in_tree || (key < limit && key >= first && position - 1 - key < window);
          if (!seen) s[m][n][r * 2 + i] = -RK_INF;
        }
    }
}

// A row's maximum stays until a score lies so many powers of two above it: up to there nothing that was summed is rescaled.
// Weights may be that much larger then, which neither float nor the 16-bit types mind.
constexpr float ROOM = 8.f;

// Scores become exp2(scale * (score - max)); earlier sums are rescaled to a maximum that moved.
template <int D, int V, Kind K, u32 M, u32 N> RK_DEV void softmax_step(float (&s)[M][N][4], float scale, RowsState<D, V, K>& state) {
  float factor[2 * M];
#pragma unroll
  for (u32 r = 0; r < 2 * M; ++r) {
    float (&x)[N][4] = s[r / 2];
    const int i = r % 2 * 2;
    float top = -RK_INF;
#pragma unroll
    for (u32 n = 0; n < N; ++n) top = rk_max(top, rk_max(x[n][i], x[n][i + 1]));
    top = rk_max(top, rk_shuffle_xor(top, 1));
    top = rk_max(top, rk_shuffle_xor(top, 2));
    if ((top - state.max[r]) * scale < ROOM) top = state.max[r];
    const float base = top == -RK_INF ? 0.f : top * scale;  // a row that has seen no key yet
    factor[r] = rk_exp2(rk_fma(state.max[r], scale, -base));
    state.max[r] = top;
    float sum = 0.f;
#pragma unroll
    for (u32 n = 0; n < N; ++n) {
      x[n][i] = rk_exp2(rk_fma(x[n][i], scale, -base));
      x[n][i + 1] = rk_exp2(rk_fma(x[n][i + 1], scale, -base));
      sum += x[n][i] + x[n][i + 1];
    }
    state.sum[r] = rk_fma(state.sum[r], factor[r], sum);
  }
  bool moved = false;                                       // in nearly all steps no maximum moves
#pragma unroll
  for (u32 r = 0; r < 2 * M; ++r) moved |= factor[r] != 1.f;
  if (rk_ballot(moved) == 0) return;
#pragma unroll
  for (u32 m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < V / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state.o[m][n][i] *= factor[m * 2 + i / 2];
}

template <int D, int V, Kind K, u32 M, u32 N>
RK_DEV void add_values(const float (&s)[M][N][4], const u8* v, u32 lane, RowsState<D, V, K>& state) {
  using L = TileLayout<V, 2>;
  constexpr bool BF16 = Element<K>::BF16;
  const u32 at_v = L::at(lane / 8 % 2 * 8 + lane % 8, lane / 16);
#pragma unroll
  for (u32 k = 0; k < N / 2; ++k) {
    u32 p[M][4];
#pragma unroll
    for (u32 m = 0; m < M; ++m) {
      p[m][0] = rk_pack<BF16>(s[m][2 * k][0], s[m][2 * k][1]);
      p[m][1] = rk_pack<BF16>(s[m][2 * k][2], s[m][2 * k][3]);
      p[m][2] = rk_pack<BF16>(s[m][2 * k + 1][0], s[m][2 * k + 1][1]);
      p[m][3] = rk_pack<BF16>(s[m][2 * k + 1][2], s[m][2 * k + 1][3]);
    }
#pragma unroll
    for (u32 n = 0; n < V / 16; ++n) {
      u32 values[4];
      rk_load_matrix_transposed(values, v + L::further(at_v, n * 2) + k * 16 * L::ROW_BYTES);
#pragma unroll
      for (u32 m = 0; m < M; ++m) {
        rk_mma<BF16>(state.o[m][n * 2], p[m], values[0], values[1]);
        rk_mma<BF16>(state.o[m][n * 2 + 1], p[m], values[2], values[3]);
      }
    }
  }
}

// For the only item of its rows: results pass through the warp's own rows of Q's memory, to be written 16 bytes at a time.
template <int D, int V, Kind K, Rows KIND>
RK_DEV void write_direct(const RkTileArgs& a, const RkTile& tile, u32 group, u8* q, u32 warp, u32 lane, float scale,
                         RowsState<D, V, K>& state) {
  using L = TileLayout<V, 2>;
  constexpr u32 M = RowsShape<D, V, K>::BLOCKS, ROWS = 16 * M;
  u8* mine = q + warp * ROWS * TileLayout<D, 2>::ROW_BYTES;
  rk_warp_barrier();                                        // the queries have been read for the last time
#pragma unroll
  for (u32 r = 0; r < 2 * M; ++r) {
    const u32 row = lane / 4 + 8 * r, at = rk_min(warp * ROWS + row, tile.rows - 1);
    const RowPlace place = row_place<KIND>(a, tile, group, at);
    float top = state.max[r] * scale;
    const float factor = add_sink(a.scoring.sinks, place.head, top, state.sum[r]), sum = state.sum[r];
    const float part = sum > 0.f ? factor / sum : sum == sum ? 0.f : sum;
#pragma unroll
    for (u32 n = 0; n < V / 8; ++n)
      *(u32*)(mine + L::at(row, n) + lane % 4 * 4) =
          rk_pack<Element<K>::BF16>(state.o[r / 2][n][r % 2 * 2] * part, state.o[r / 2][n][r % 2 * 2 + 1] * part);
    if (lane % 4 == 0 && a.lse && warp * ROWS + row < tile.rows)
      a.lse[place.token * a.q_heads + place.head] = log_sum(top, sum) * a.lse_scale;
  }
  rk_warp_barrier();
#pragma unroll 1
  for (u32 i = lane; i < ROWS * L::CHUNKS; i += 32) {
    const u32 row = i / L::CHUNKS, chunk = i % L::CHUNKS;
    if (warp * ROWS + row >= tile.rows) break;
    const RowPlace place = row_place<KIND>(a, tile, group, warp * ROWS + row);
    *(rk_u4*)(a.out + (place.token * a.q_heads + place.head) * V + chunk * 8) = *(const rk_u4*)(mine + L::at(row, chunk));
  }
}

template <int D, int V, Kind K>
RK_DEV void write_part(const RkTileArgs& a, const RkTile& tile, u32 warp, u32 lane, float scale, const RowsState<D, V, K>& state) {
  constexpr u32 M = RowsShape<D, V, K>::BLOCKS;
#pragma unroll
  for (u32 r = 0; r < 2 * M; ++r) {
    const u32 row = warp * 16 * M + lane / 4 + 8 * r;
    if (row >= tile.rows) continue;
    const u64 at = (u64)tile.part + row;
#pragma unroll
    for (int n = 0; n < V / 8; ++n)
      *(rk_f2*)(a.part_o + at * V + n * 8 + lane % 4 * 2) =
          rk_f2{state.o[r / 2][n][r % 2 * 2], state.o[r / 2][n][r % 2 * 2 + 1]};
    if (lane % 4 == 0) *(rk_f2*)(a.part_ml + at * 2) = rk_f2{state.max[r] * scale, state.sum[r]};
  }
}

template <int D, int V, Kind K, Rows KIND> RK_DEV void attend_rows(const RkTileArgs& a) {
  using S = RowsShape<D, V, K>;
  constexpr u32 M = S::BLOCKS, WARP_ROWS = 16 * M;
  RK_SHARED(u8, q);
  u8* wide = q + S::Q_BYTES;
  u8* stages = wide + S::WIDE;                              // [2][keys, values, scales]
  u32* views = (u32*)(stages + 2 * S::STAGE);               // [limit, position, tree][ROWS]
  const u32 lane = RK_THREAD % 32, warp = RK_THREAD / 32, group = a.q_heads / a.kv_heads;
  const RkTile* tile = a.tiles + RK_BLOCK_X;
  RK_PROMISE(tile->first <= tile->end && tile->kv_head < a.kv_heads && tile->rows >= 1 && tile->rows <= S::ROWS);
  RowsState<D, V, K> state = {};
#pragma unroll
  for (u32 r = 0; r < 2 * M; ++r) state.max[r] = -RK_INF;
  u32 end = tile->end;
  if (KIND == Rows::CHUNK && !a.trees) end = rk_min(end, tile->visible + (tile->row_first + tile->rows - 1) / group);
  Pages<D, V, K> pages = {a, Pages<D, V, K>::EVEN && whole_tiles(a.kv) ? tile->first & ~15u : tile->first, tile->first, end, 0};
  const u32 steps = tile->first < end ? (end - pages.base + S::KEYS - 1) / S::KEYS : 0;
  if (RK_THREAD < S::ROWS) {
    const RowView view = row_view<KIND>(a, *tile, group, rk_min(RK_THREAD, tile->rows - 1));
    views[RK_THREAD] = view.limit;
    views[S::ROWS + RK_THREAD] = view.position;
    views[2 * S::ROWS + RK_THREAD] = view.tree;
  }
  if (steps > 0) {
    copy_queries<D, V, K, KIND>(a, *tile, group, q);
    pages.copy(0, stages);
  }
  const bool scored = a.scoring.cap != 0.f || a.scoring.slopes;
  const float scale = scored ? 1.f : a.scale_log2;
  for (u32 step = 0; step < steps; ++step) {
    rk_copy_wait<0>();
    rk_block_barrier();                                     // this step's keys are here, and the other stage is free
    const u8* in = stages + step % 2 * S::STAGE;
    if (step + 1 < steps) pages.copy(step + 1, stages + (step + 1) % 2 * S::STAGE);
    const u8* k = in;
    const u8* v = in + S::KEYS_IN;
    if (S::E::SCALED) {
      const float* scales = (const float*)(v + S::VALUES_IN);
      widen_rows<typename S::KeysIn, typename S::Keys, K, false>(k, scales, S::KEYS, wide);
      widen_rows<typename S::ValuesIn, typename S::Values, K, true>(v, scales + S::KEYS, S::KEYS, wide + S::KEYS * S::Keys::ROW_BYTES);
      rk_block_barrier();                                   // what the other warps made wide is there
      k = wide;
      v = wide + S::KEYS * S::Keys::ROW_BYTES;
    }
    float s[M][S::KEYS / 8][4];
    scores<D, K>(q + warp * WARP_ROWS * S::Keys::ROW_BYTES, k, rk_anew(lane), s);
    if (S::E::SCALED) scale_scores((const float*)(in + S::KEYS_IN + S::VALUES_IN), rk_anew(lane), s);
    const u32 key0 = pages.base + step * S::KEYS, row = warp * WARP_ROWS + lane / 4;
    if (scored) score_rows(a, views + S::ROWS, row, key0, lane, s);
    const u32 first_row = warp * WARP_ROWS, last_position = views[S::ROWS + first_row + WARP_ROWS - 1];
    // Positions ascend in a chunk alone.
    const bool behind = KIND == Rows::CHUNK && !a.trees ? (int)(last_position - a.scoring.window) > (int)key0
                                                        : a.scoring.window != RK_NO_WINDOW;
    if (key0 + S::KEYS > views[first_row] || key0 < pages.first || behind)
      mask_scores<S::ROWS>(views, pages.first, a.scoring.window, row, key0, lane, s);
    softmax_step<D, V, K>(s, scale, state);
    add_values<D, V, K>(s, v, rk_anew(lane), state);
  }
#pragma unroll
  for (u32 r = 0; r < 2 * M; ++r) {
    state.sum[r] += rk_shuffle_xor(state.sum[r], 1);
    state.sum[r] += rk_shuffle_xor(state.sum[r], 2);
  }
  const RkTile& again = a.tiles[rk_anew(RK_BLOCK_X)];       // now registers are free
  if (KIND == Rows::CHUNK && again.part == RK_DIRECT)
    write_direct<D, V, K, KIND>(a, again, group, q, warp, lane, scale, state);
  else write_part<D, V, K>(a, again, warp, lane, scale, state);
}
