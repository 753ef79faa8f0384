// latent.cuh - attention of one new token of a sequence over latent vectors: multi-head latent
// attention (MLA) in its absorbed form. A token has one vector of D elements, which is its key for
// all query heads, and whose first V elements are its value. A block of threads takes up to 16 * M
// query heads over the keys [first, end), 32 keys a step, through two stages of shared memory. All
// warps do the three parts of a step, with a barrier of the block between them:
//   products  a warp multiplies a quarter of the elements, of 32 / M keys
//   weights   a warp adds the quarters of four heads, and keeps their maxima and sums
//   values    a warp adds its columns of the values, for all heads
#pragma once
#include "tile.cuh"

template <u32 M> struct LatentShape {
  static constexpr u32 D = 576, V = 512;
  using Rows = TileLayout<D, 2>;
  static constexpr u32 HEADS = 16 * M, WARPS = 4 * M, THREADS = 32 * WARPS;
  static constexpr u32 KEYS = 32;                           // of a step
  static constexpr u32 STAGE = KEYS * Rows::ROW_BYTES;
  static constexpr u32 QUARTERS = 4, BLOCKS = D / 16 / QUARTERS;  // blocks of 16 elements of a quarter: every fourth one
  static constexpr u32 SCORE_ROW = KEYS + 8;                // floats between rows of products; the 8 spread the banks
  static constexpr u32 SCORES = QUARTERS * HEADS * SCORE_ROW * 4;
  using Weights = TileLayout<KEYS, 2>;
  static constexpr u32 WEIGHTS = HEADS * Weights::ROW_BYTES;
  static constexpr u32 SHARED = 2 * STAGE + SCORES + WEIGHTS + HEADS * 4;
  static constexpr u32 COLUMNS = V / WARPS;                 // of a warp
};

// The copies of keys. The table is looked up for each key: a lane has the block of one key of the
// step that is copied next.
template <u32 M> struct LatentKeys {
  using S = LatentShape<M>;
  using L = typename S::Rows;
  const RkKv& kv;
  const u32* table;        // of this sequence
  u32 first, end, warp, lane;
  u32 block;

  RK_DEV_METHOD u32 entry(u32 step) const {
    const u32 key = first + step * S::KEYS + lane;
    return key < end ? table[key / kv.block_tokens] : 0;
  }

  // Steps count up from 0 without gaps.
  RK_DEV_METHOD void copy(u32 step, u8* to) {
    const u32 key = first + step * S::KEYS;
    const u32 mine = token_unit<2>(kv, kv.k, block, (key + lane) % kv.block_tokens);
    block = entry(step + 1);
    // A warp has every WARPS-th row, and copies 64 chunks of each, then the last 8 chunks of four
    // rows at a time.
#pragma unroll
    for (u32 row = 0; row < S::KEYS; row += S::WARPS) copy_chunks(to, mine, row + warp, lane, 32, key);
#pragma unroll
    for (u32 row = 0; row < S::KEYS; row += 4 * S::WARPS) copy_chunks(to, mine, row + lane / 8 * S::WARPS + warp, 64 + lane % 8, 0, key);
    rk_copy_commit();
  }

  // Copies a chunk of a row, and the one `more` chunks further.
  RK_DEV_METHOD void copy_chunks(u8* to, u32 mine, u32 row, u32 chunk, u32 more, u32 key) const {
    const u8* from = (const u8*)kv.k.at + (u64)rk_shuffle(mine, row) * 16 + chunk * 16;
    const bool valid = key + row < end;                     // another slot may hold NaN, and 0 * NaN is NaN
    rk_copy_async(to + L::at(row, chunk), from, valid);
    if (more) rk_copy_async(to + L::at(row, chunk) + more * 16, from + more * 16, valid);
  }
};

// The queries that a warp multiplies: its quarter of the elements of all heads.
template <u32 M> struct LatentQueries {
  using S = LatentShape<M>;
  u32 of[M][S::BLOCKS][4];

  RK_DEV_METHOD void read(const u16* from, u32 heads, u32 quarter, u32 lane) {
#pragma unroll
    for (u32 m = 0; m < M; ++m)
#pragma unroll
      for (u32 b = 0; b < S::BLOCKS; ++b)
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
          const u32 row = m * 16 + r * 8 + lane / 4;
          const u16* at = from + row * S::D + (b * S::QUARTERS + quarter) * 16 + lane % 4 * 2;
          of[m][b][r] = row < heads ? *(const u32*)at : 0u;
          of[m][b][r + 2] = row < heads ? *(const u32*)(at + 8) : 0u;
        }
  }
};

// Products of all heads with some keys, over a quarter of the elements.
template <u32 M, bool BF16> RK_DEV void multiply_quarter(const u8* keys, const LatentQueries<M>& q, u32 warp, u32 lane, float* scores) {
  using S = LatentShape<M>;
  using L = typename S::Rows;
  constexpr u32 N = S::KEYS / M / 8;                        // blocks of 8 keys
  const u32 quarter = warp % S::QUARTERS, first = warp / S::QUARTERS * N * 8;
  float s[M][N][4] = {};
  const u8* const from = keys + first * L::ROW_BYTES + L::further(L::at(lane / 16 * 8 + lane % 8, lane / 8 % 2), quarter * 2);
#pragma unroll
  for (u32 b = 0; b < S::BLOCKS; ++b)
#pragma unroll
    for (u32 n = 0; n < N; n += 2) {
      u32 r[4];
      rk_load_matrix(r, from + n * 8 * L::ROW_BYTES + b * S::QUARTERS * 32);
#pragma unroll
      for (u32 m = 0; m < M; ++m) {
        rk_mma<BF16>(s[m][n], q.of[m][b], r[0], r[1]);
        rk_mma<BF16>(s[m][n + 1], q.of[m][b], r[2], r[3]);
      }
    }
  float* const to = scores + (quarter * S::HEADS + lane / 4) * S::SCORE_ROW + first + lane % 4 * 2;
#pragma unroll
  for (u32 m = 0; m < M; ++m)
#pragma unroll
    for (u32 n = 0; n < N; ++n)
#pragma unroll
      for (u32 r = 0; r < 2; ++r)
        *(rk_f2*)(to + (m * 16 + r * 8) * S::SCORE_ROW + n * 8) = rk_f2{s[m][n][2 * r], s[m][n][2 * r + 1]};
}

// What a row has summed: its maximum in log2 units, and this lane's part of the sum of weights.
struct LatentState { float max, sum; };

// The weights of four keys of a row: 8 lanes have a row, and a warp has four rows. Earlier sums are
// multiplied by what is written to `factors`.
template <u32 M, bool BF16>
RK_DEV void weigh(const RkDecodeArgs& a, const RkDecodeItem& item, const float* scores, u32 key, u32 row, u32 head, u32 lane,
                  LatentState& state, u8* weights, float* factors) {
  using S = LatentShape<M>;
  const u32 column = lane % 8 * 4;
  float x[4] = {};
#pragma unroll
  for (u32 quarter = 0; quarter < S::QUARTERS; ++quarter) {
    const rk_f4 part = *(const rk_f4*)(scores + (quarter * S::HEADS + row) * S::SCORE_ROW + column);
    x[0] += part.x; x[1] += part.y; x[2] += part.z; x[3] += part.w;
  }
  const float slope = a.scoring.slopes ? a.scoring.slopes[head] : 0.f;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    x[i] *= a.scale_log2;
    if (a.scoring.cap != 0.f) x[i] = capped(a.scoring, x[i]);
    if (a.scoring.slopes) x[i] = rk_fma(-slope, (float)(int)(item.position - 1 - (key + column + i)), x[i]);
    if (key + column + i >= item.end) x[i] = -RK_INF;
  }
  float top = rk_max(rk_max(x[0], x[1]), rk_max(x[2], x[3]));
  top = rk_max(top, rk_shuffle_xor(top, 1));
  top = rk_max(top, rk_shuffle_xor(top, 2));
  top = rk_max(top, rk_shuffle_xor(top, 4));
  top = rk_max(state.max, top);
  const float base = top == -RK_INF ? 0.f : top;            // scores beyond the range of a float
  const float factor = rk_exp2(state.max - base);           // first step: exp2(-inf) = 0
#pragma unroll
  for (u32 i = 0; i < 4; ++i) x[i] = rk_exp2(x[i] - base);
  state = {top, state.sum * factor + ((x[0] + x[1]) + (x[2] + x[3]))};
  *(rk_u2*)(weights + S::Weights::at(row, column / 8) + column % 8 * 2) = rk_u2{rk_pack<BF16>(x[0], x[1]), rk_pack<BF16>(x[2], x[3])};
  if (lane % 8 == 0) factors[row] = factor;
}

// Adds a warp's columns of the values of a step.
template <u32 M, bool BF16>
RK_DEV void add_columns(const u8* keys, const u8* weights, const float* factors, u32 warp, u32 lane,
                        float (&o)[M][LatentShape<M>::COLUMNS / 8][4]) {
  using S = LatentShape<M>;
  using L = typename S::Rows;
  u32 p[M][S::KEYS / 16][4];
  float factor[M][2];
#pragma unroll
  for (u32 m = 0; m < M; ++m) {
#pragma unroll
    for (u32 k = 0; k < S::KEYS / 16; ++k) rk_load_matrix(p[m][k], weights + S::Weights::at(m * 16 + lane % 16, k * 2 + lane / 16));
    factor[m][0] = factors[m * 16 + lane / 4];
    factor[m][1] = factors[m * 16 + lane / 4 + 8];
  }
  const u8* const from = keys + warp * S::COLUMNS * 2;
  const u32 at = L::at(lane / 8 % 2 * 8 + lane % 8, lane / 16);
#pragma unroll
  for (u32 n = 0; n < S::COLUMNS / 8; n += 2) {
#pragma unroll
    for (u32 m = 0; m < M; ++m)
#pragma unroll
      for (u32 i = 0; i < 8; ++i) o[m][n + i / 4][i % 4] *= factor[m][i / 2 % 2];
#pragma unroll
    for (u32 k = 0; k < S::KEYS / 16; ++k) {
      u32 r[4];
      rk_load_matrix_transposed(r, from + L::further(at, n) + k * 16 * L::ROW_BYTES);
#pragma unroll
      for (u32 m = 0; m < M; ++m) {
        rk_mma<BF16>(o[m][n], p[m][k], r[0], r[1]);
        rk_mma<BF16>(o[m][n + 1], p[m][k], r[2], r[3]);
      }
    }
  }
}

// Writes a warp's columns of the item's rows, of which there are `heads`: results, or partial rows.
// `states`: maximum and sum of each.
template <u32 M, bool BF16>
RK_DEV void write_columns(const RkDecodeArgs& a, const RkDecodeItem& item, u32 heads, const rk_f2* states, u32 warp, u32 lane,
                          const float (&o)[M][LatentShape<M>::COLUMNS / 8][4]) {
  using S = LatentShape<M>;
  const u32 column = warp * S::COLUMNS + lane % 4 * 2;
  const bool writes_sums = warp == 0 && lane % 4 == 0;
#pragma unroll
  for (u32 m = 0; m < M; ++m)
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      const u32 in_item = m * 16 + r * 8 + lane / 4;
      if (in_item >= heads) continue;
      float top = states[in_item].x, sum = states[in_item].y;
      if (item.part == RK_DIRECT) {
        const u32 head = item.kv_head * heads + in_item;
        const u64 row = (u64)item.seq * a.q_heads + head;
        const float factor = add_sink(a.scoring.sinks, head, top, sum);
        const float by = sum > 0.f ? factor / sum : sum == sum ? 0.f : sum;
#pragma unroll
        for (u32 n = 0; n < S::COLUMNS / 8; ++n)
          *(u32*)(a.out + row * S::V + column + n * 8) = rk_pack<BF16>(o[m][n][r * 2] * by, o[m][n][r * 2 + 1] * by);
        if (writes_sums && a.lse) a.lse[row] = log_sum(top, sum) * a.lse_scale;
      } else {
        const u64 row = (u64)item.part + in_item;
#pragma unroll
        for (u32 n = 0; n < S::COLUMNS / 8; ++n)
          *(rk_f2*)(a.part_o + row * S::V + column + n * 8) = rk_f2{o[m][n][r * 2], o[m][n][r * 2 + 1]};
        if (writes_sums) *(rk_f2*)(a.part_ml + row * 2) = rk_f2{top, sum};
      }
    }
}

// `kv_heads` of the arguments: into so many items the query heads of a sequence are divided. `kv.v`
// is not used.
template <u32 M, bool BF16> RK_DEV void attend_latents(const RkDecodeArgs& a) {
  using S = LatentShape<M>;
  const RkDecodeItem item = a.items[RK_BLOCK_X];
  if (item.kv_head == RK_IDLE) return;
  RK_SHARED(u8, stages);
  float* scores = (float*)(stages + 2 * S::STAGE);          // [quarter][head][key]
  u8* weights = (u8*)scores + S::SCORES;                    // [head][key]
  float* factors = (float*)(weights + S::WEIGHTS);          // [head]
  const u32 lane = RK_THREAD % 32, warp = RK_THREAD / 32, heads = a.q_heads / a.kv_heads;
  RK_PROMISE(item.first <= item.end && item.end <= item.position && heads <= S::HEADS && item.kv_head < a.kv_heads);
  LatentKeys<M> keys = {a.kv, a.table + item.table, item.first, item.end, warp, lane, 0};
  const u32 steps = (item.end - item.first + S::KEYS - 1) / S::KEYS;
  if (steps > 0) {
    keys.block = keys.entry(0);
    keys.copy(0, stages);
  }
  LatentQueries<M> q;
  q.read(a.q + (u64)item.seq * a.q_stride + (u64)item.kv_head * heads * S::D, heads, warp % S::QUARTERS, lane);
  const u32 row = warp * 4 + lane / 8, head = item.kv_head * heads + rk_min(row, heads - 1);
  LatentState state = {-RK_INF, 0.f};
  float o[M][S::COLUMNS / 8][4] = {};
  for (u32 step = 0; step < steps; ++step) {
    const u8* in = stages + step % 2 * S::STAGE;
    rk_copy_wait<0>();
    rk_block_barrier();                                     // this step's keys are here, and the other stage is free
    if (step + 1 < steps) keys.copy(step + 1, stages + (step + 1) % 2 * S::STAGE);
    multiply_quarter<M, BF16>(in, q, warp, lane, scores);
    rk_block_barrier();                                     // all products are there
    weigh<M, BF16>(a, item, scores, item.first + step * S::KEYS, row, head, lane, state, weights, factors);
    rk_block_barrier();                                     // all weights are there
    add_columns<M, BF16>(in, weights, factors, warp, lane, o);
  }
  float sum = state.sum;
  sum += rk_shuffle_xor(sum, 1);
  sum += rk_shuffle_xor(sum, 2);
  sum += rk_shuffle_xor(sum, 4);
  if (lane % 8 == 0) ((rk_f2*)scores)[row] = rk_f2{state.max, sum};
  rk_block_barrier();                                       // every row's state is there
  write_columns<M, BF16>(a, item, heads, (const rk_f2*)scores, warp, lane, o);
}
