// rows.cuh - attention of a tile of up to 128 query rows over the same keys: the body of `extend`, and of
// the tiles of `cascade` that are sharers'; they differ in where a row's query lies.
// Four warps hold 32 rows each; keys come 64 at a time through two stages of shared memory. A step waits for its keys,
// passes one barrier, starts the copies of the next step and computes.
#pragma once
#include "tile.cuh"

enum class Rows { CHUNK, SHARERS };

template <int D> struct RowsShape {
  static constexpr u32 THREADS = 128;
  static constexpr u32 ROWS = 128;
  static constexpr u32 KEYS = 64;                           // of a step
  static constexpr u32 CHUNKS = D / 8;                      // 16-byte chunks of a row
  static constexpr u32 PASS = THREADS / CHUNKS;             // rows that the block copies at once
  static constexpr u32 Q = ROWS * D, KV = KEYS * D;         // elements of Q, of one stage of K or V
};

// Query token and head of one row of the tile.
struct RowPlace { u64 token; u32 head; };

template <Rows KIND> RK_DEV RowPlace row_place(const RkTileArgs& a, const RkTile& tile, u32 group, u32 row) {
  const u32 i = tile.row_first + row, at = tile.q_first + i / group;
  return {KIND == Rows::SHARERS ? a.members[at] : at, tile.kv_head * group + i % group};
}

// Keys that a row sees are those below this position.
RK_DEV u32 row_limit(const RkTile& tile, u32 group, u32 row) {
  if (tile.visible >= tile.end) return tile.end;
  return rk_min(tile.end, tile.visible + (tile.row_first + row) / group);
}

// The copies belong to the group that is ended next.
template <int D, Rows KIND> RK_DEV void copy_queries(const RkTileArgs& a, const RkTile& tile, u32 group, u16* q) {
  using S = RowsShape<D>;
  const u32 chunk = RK_THREAD % S::CHUNKS;
#pragma unroll 1
  for (u32 row = RK_THREAD / S::CHUNKS; row < S::ROWS; row += S::PASS) {
    const bool valid = row < tile.rows;
    const u16* from = a.q;
    if (valid) {
      const RowPlace place = row_place<KIND>(a, tile, group, row);
      from += place.token * a.q_stride + (u64)place.head * D + chunk * 8;
    }
    rk_copy_async(q + swizzled<D>(row, chunk), from, valid);
  }
}

// Copies 64 keys and values at a time into shared memory. Each lane holds the block table entry of one of the next 32
// groups of 16 keys.
template <int D> struct Pages {
  const RkTileArgs& a;
  u32 first, end;
  u32 blocks;

  // Starts the copies of step `step`; steps count up from 0 without gaps, and the whole block calls.
  RK_DEV_METHOD void copy(u32 step, u16* k, u16* v) {
    using S = RowsShape<D>;
    const u32 key = first + step * S::KEYS, lane = RK_THREAD % 32;
    const RkTile& tile = a.tiles[RK_BLOCK_X];               // read again: no register holds it
    if (step % 8 == 0 && key + lane * 16 < end)
      blocks = a.table[tile.table + ((key + lane * 16) >> a.kv.block_shift)];
    const u32 thread = rk_anew(RK_THREAD), chunk = thread % S::CHUNKS, row0 = thread / S::CHUNKS;
    const u64 mine = (u64)row0 * a.kv.token_stride + chunk * 8;
    const u32 to = swizzled<D>(row0, chunk);
    const int left = (int)(end - key) - (int)row0;          // rows from row0 on
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      // Behind the end it is a block of before, or the first one: nothing of it is read.
      const u32 block = rk_shuffle(blocks, step % 8 * 4 + i);
      const u64 from = page_offset(a.kv, block, key + 16 * i, tile.kv_head) + mine;
      const u16 *from_k = a.kv.k + from, *from_v = a.kv.v + from;
#pragma unroll
      for (u32 j = 0; j < 16; j += S::PASS) {
        const u32 row = 16 * i + j;
        const bool valid = (int)row < left;                 // a slot after the end may hold NaN, and 0 * NaN is NaN
        const u64 later = (u64)j * a.kv.token_stride;
        rk_copy_async(k + to + row * D, from_k + later, valid);
        rk_copy_async(v + to + row * D, from_v + later, valid);
      }
    }
    rk_copy_commit();
  }
};

// The state of a warp's 32 rows, two tiles of 16; a thread has 4 rows, at lane / 4 + 8 * {0, 1, 2, 3}.
template <int D> struct RowsState {
  float o[2][D / 8][4];
  float max[4];            // of the raw scores, or up to ROOM below it
  float sum[4];
};

template <int D, bool BF16> RK_DEV void scores(const u16* q, const u16* k, u32 lane, float (&s)[2][8][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0.f;
  const u32 at_q = swizzled<D>(lane % 16, lane / 16), at_k = swizzled<D>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int d = 0; d < D / 16; ++d) {
    u32 rows[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) rk_load_matrix(rows[m], q + (at_q ^ d * 16) + m * 16 * D);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      u32 keys[4];
      rk_load_matrix(keys, k + (at_k ^ d * 16) + n * 16 * D);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        rk_mma<BF16>(s[m][n * 2], rows[m], keys[0], keys[1]);
        rk_mma<BF16>(s[m][n * 2 + 1], rows[m], keys[2], keys[3]);
      }
    }
  }
}

// `limit`: of the warp's rows.
RK_DEV void mask_scores(const u32* limit, u32 key0, u32 lane, float (&s)[2][8][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (key0 + n * 8 + lane % 4 * 2 + i % 2 >= limit[lane / 4 + m * 16 + i / 2 * 8]) s[m][n][i] = -RK_INF;
}

// A row's maximum stays until a score lies so many powers of two above it: up to there nothing that was summed is rescaled.
// Weights may be that much larger then, which neither float nor the 16-bit types mind.
constexpr float ROOM = 8.f;

// Scores become exp2(scale * (score - max)); earlier sums are rescaled to a maximum that moved.
template <int D> RK_DEV void softmax_step(float (&s)[2][8][4], float scale, RowsState<D>& state) {
  float factor[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    float (&x)[8][4] = s[r / 2];
    const int i = r % 2 * 2;
    float top = -RK_INF;
#pragma unroll
    for (int n = 0; n < 8; ++n) top = rk_max(top, rk_max(x[n][i], x[n][i + 1]));
    top = rk_max(top, rk_shuffle_xor(top, 1));
    top = rk_max(top, rk_shuffle_xor(top, 2));
    if ((top - state.max[r]) * scale < ROOM) top = state.max[r];
    const float base = top == -RK_INF ? 0.f : top * scale;  // a row that has seen no key yet
    factor[r] = rk_exp2(rk_fma(state.max[r], scale, -base));
    state.max[r] = top;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      x[n][i] = rk_exp2(rk_fma(x[n][i], scale, -base));
      x[n][i + 1] = rk_exp2(rk_fma(x[n][i + 1], scale, -base));
      sum += x[n][i] + x[n][i + 1];
    }
    state.sum[r] = rk_fma(state.sum[r], factor[r], sum);
  }
  // In nearly all steps no maximum moves.
  if (rk_ballot(factor[0] != 1.f || factor[1] != 1.f || factor[2] != 1.f || factor[3] != 1.f) == 0) return;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state.o[m][n][i] *= factor[m * 2 + i / 2];
}

template <int D, bool BF16> RK_DEV void add_values(const float (&s)[2][8][4], const u16* v, u32 lane, RowsState<D>& state) {
  const u32 at_v = swizzled<D>(lane / 8 % 2 * 8 + lane % 8, lane / 16);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    u32 p[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      p[m][0] = rk_pack<BF16>(s[m][2 * k][0], s[m][2 * k][1]);
      p[m][1] = rk_pack<BF16>(s[m][2 * k][2], s[m][2 * k][3]);
      p[m][2] = rk_pack<BF16>(s[m][2 * k + 1][0], s[m][2 * k + 1][1]);
      p[m][3] = rk_pack<BF16>(s[m][2 * k + 1][2], s[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      u32 values[4];
      rk_load_matrix_transposed(values, v + (at_v ^ n * 16) + k * 16 * D);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        rk_mma<BF16>(state.o[m][n * 2], p[m], values[0], values[1]);
        rk_mma<BF16>(state.o[m][n * 2 + 1], p[m], values[2], values[3]);
      }
    }
  }
}

// For the only item of its rows: results pass through the warp's own rows of Q's memory, to be written 16 bytes at a time.
template <int D, bool BF16, Rows KIND>
RK_DEV void write_direct(const RkTileArgs& a, const RkTile& tile, u32 group, u16* q, u32 warp, u32 lane,
                         const RowsState<D>& state) {
  using S = RowsShape<D>;
  u16* mine = q + warp * 32 * D;
  rk_warp_barrier();                                        // the queries have been read for the last time
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const u32 row = lane / 4 + 8 * r;
    const float part = state.sum[r] > 0.f ? 1.f / state.sum[r] : 0.f;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *(u32*)(mine + swizzled<D>(row, n) + lane % 4 * 2) =
          rk_pack<BF16>(state.o[r / 2][n][r % 2 * 2] * part, state.o[r / 2][n][r % 2 * 2 + 1] * part);
    if (lane % 4 == 0 && a.lse && warp * 32 + row < tile.rows) {
      const RowPlace place = row_place<KIND>(a, tile, group, warp * 32 + row);
      a.lse[place.token * a.q_heads + place.head] = log_sum(state.max[r] * a.scale_log2, state.sum[r]) * a.lse_scale;
    }
  }
  rk_warp_barrier();
#pragma unroll 1
  for (u32 i = lane; i < 32 * S::CHUNKS; i += 32) {
    const u32 row = i / S::CHUNKS, chunk = i % S::CHUNKS;
    if (warp * 32 + row >= tile.rows) break;
    const RowPlace place = row_place<KIND>(a, tile, group, warp * 32 + row);
    *(rk_u4*)(a.out + (place.token * a.q_heads + place.head) * D + chunk * 8) =
        *(const rk_u4*)(mine + swizzled<D>(row, chunk));
  }
}

template <int D>
RK_DEV void write_part(const RkTileArgs& a, const RkTile& tile, u32 warp, u32 lane, const RowsState<D>& state) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const u32 row = warp * 32 + lane / 4 + 8 * r;
    if (row >= tile.rows) continue;
    const u64 at = (u64)tile.part + row;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *(rk_f2*)(a.part_o + at * D + n * 8 + lane % 4 * 2) =
          rk_f2{state.o[r / 2][n][r % 2 * 2], state.o[r / 2][n][r % 2 * 2 + 1]};
    if (lane % 4 == 0) *(rk_f2*)(a.part_ml + at * 2) = rk_f2{state.max[r] * a.scale_log2, state.sum[r]};
  }
}

template <int D, bool BF16, Rows KIND> RK_DEV void attend_rows(const RkTileArgs& a) {
  using S = RowsShape<D>;
  RK_SHARED(u16, q);
  u16* stages = q + S::Q;                                   // [2][K, V]
  u32* limits = (u32*)(stages + 4 * S::KV);                 // [128]
  const u32 lane = RK_THREAD % 32, warp = RK_THREAD / 32, group = a.q_heads / a.kv_heads;
  const RkTile* tile = a.tiles + RK_BLOCK_X;
  RK_PROMISE(tile->first % 16 == 0 && tile->first <= tile->end && tile->kv_head < a.kv_heads);
  RK_PROMISE(tile->rows >= 1 && tile->rows <= S::ROWS);
  RowsState<D> state = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) state.max[r] = -RK_INF;
  const u32 end = row_limit(*tile, group, tile->rows - 1);
  Pages<D> pages = {a, tile->first, end, 0};
  const u32 steps = pages.first < end ? (end - pages.first + S::KEYS - 1) / S::KEYS : 0;
  limits[RK_THREAD] = row_limit(*tile, group, rk_min(RK_THREAD, tile->rows - 1));
  if (steps > 0) {
    copy_queries<D, KIND>(a, *tile, group, q);
    pages.copy(0, stages, stages + S::KV);
  }
  for (u32 step = 0; step < steps; ++step) {
    rk_copy_wait<0>();
    rk_block_barrier();                                     // this step's keys are here, and the other stage is free
    const u16* k = stages + step % 2 * 2 * S::KV;
    if (step + 1 < steps) {
      u16* other = stages + (step + 1) % 2 * 2 * S::KV;
      pages.copy(step + 1, other, other + S::KV);
    }
    float s[2][8][4];
    scores<D, BF16>(q + warp * 32 * D, k, rk_anew(lane), s);
    const u32 key0 = pages.first + step * S::KEYS;
    if (key0 + S::KEYS > limits[warp * 32]) mask_scores(limits + warp * 32, key0, lane, s);
    softmax_step<D>(s, a.scale_log2, state);
    add_values<D, BF16>(s, k + S::KV, rk_anew(lane), state);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    state.sum[r] += rk_shuffle_xor(state.sum[r], 1);
    state.sum[r] += rk_shuffle_xor(state.sum[r], 2);
  }
  const RkTile& again = a.tiles[rk_anew(RK_BLOCK_X)];       // now registers are free
  if (KIND == Rows::CHUNK && again.part == RK_DIRECT) write_direct<D, BF16, KIND>(a, again, group, q, warp, lane, state);
  else write_part<D>(a, again, warp, lane, state);
}
