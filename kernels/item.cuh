// item.cuh - attention of one new token of a sequence over the keys [first, end): the body of `decode`, and of the tiles of
// `cascade` that are one sequence's. A block of threads takes the query heads (at most 16) of one key-value head, which are
// the 16 rows of the tensor cores' tile. Each warp walks its own tiles of 16 keys through its own ring of shared memory, so
// that the loop needs no barrier of the block; the warps' results are merged at the end.
#pragma once
#include "tile.cuh"

template <int D> struct DecodeShape {
  static constexpr int WARPS = 4;
  static constexpr int TILE = 16 * D;                       // elements of one tile of K or V
  static constexpr int STAGES = D == 128 ? 3 : 6;           // 8 or 4 KiB each: 96 KiB a block, two blocks a multiprocessor
  static constexpr int ROW = D + 8;                         // floats between rows of the merge; the 8 spread the banks
};

// The ring of one warp, and the block table entries of its next 32 tiles, one a lane.
template <int D> struct Ring {
  const RkKv& kv;
  const u32* table;        // of this sequence
  u16* slots;
  u32 first, end, tiles;   // keys, tiles of 16
  u32 kv_head, warp, lane;
  u32 blocks;              // this lane's entry

  // Starts the copy of the warp's n-th tile into slot `slot`; n counts up from 0 without gaps.
  RK_DEV_METHOD void load(u32 n, u32 slot) {
    using S = DecodeShape<D>;
    constexpr u32 CHUNKS = D / 8;
    if ((n & 31) == 0) {
      const u32 mine = warp + (n + lane) * S::WARPS;
      if (mine < tiles) blocks = table[(first + mine * 16) >> kv.block_shift];
    }
    const u32 tile = warp + n * S::WARPS;
    if (tile < tiles) {
      const u32 key = first + tile * 16;
      const u64 page = page_offset(kv, rk_shuffle(blocks, n & 31), key, kv_head);
      u16* k = slots + slot * 2 * S::TILE;
      u16* v = k + S::TILE;
#pragma unroll
      for (u32 i = 0; i < 16 * CHUNKS / 32; ++i) {
        const u32 unit = i * 32 + lane, row = unit / CHUNKS, chunk = unit % CHUNKS;
        const bool valid = key + row < end;                 // a slot after the end may hold NaN, and 0 * NaN is NaN
        const u64 from = page + (u64)row * kv.token_stride + chunk * 8;
        rk_copy_async(k + swizzled<D>(row, chunk), kv.k + from, valid);
        rk_copy_async(v + swizzled<D>(row, chunk), kv.v + from, valid);
      }
    }
    rk_copy_commit();
  }
};

// Running softmax of one of the two rows that a thread holds: maximum in log2 units, sum.
struct RowState { float max, sum; };

// 8 scores a thread, 4 of each row: updates the states, replaces scores by exp2(score - max), returns the factors that
// rescale earlier sums.
RK_DEV void softmax_step(float (&x)[8], RowState (&row)[2], float (&factor)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float* s = x + 4 * r;
    float top = rk_max(rk_max(s[0], s[1]), rk_max(s[2], s[3]));
    top = rk_max(top, rk_shuffle_xor(top, 1));
    top = rk_max(top, rk_shuffle_xor(top, 2));
    top = rk_max(row[r].max, top);                          // finite: every tile has a key
    factor[r] = rk_exp2(row[r].max - top);                  // first tile: exp2(-inf) = 0
    row[r].max = top;
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] = rk_exp2(s[i] - top);
    row[r].sum = row[r].sum * factor[r] + ((s[0] + s[1]) + (s[2] + s[3]));
  }
}

template <int D, class Args>
RK_DEV void load_queries(const Args& a, const RkDecodeItem& item, u32 group, u32 lane, u32 (&q)[D / 16][4]) {
  const u16* from = a.q + (u64)item.seq * a.q_stride + (u64)item.kv_head * group * D;
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 row = lane / 4 + 8 * (i & 1), column = k * 16 + lane % 4 * 2 + 8 * (i >> 1);
      q[k][i] = row < group ? *(const u32*)(from + row * D + column) : 0u;
    }
}

// One tile: scores, softmax, sum of values.
template <int D, bool BF16>
RK_DEV void attend(const u16* k, const u16* v, u32 keys, float scale, u32 lane, const u32 (&q)[D / 16][4],
                   RowState (&row)[2], float (&o)[D / 8][4]) {
  float s[2][4] = {};
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    u32 r[4];
    rk_load_matrix(r, k + swizzled<D>(lane / 16 * 8 + lane % 8, i * 2 + lane / 8 % 2));
    rk_mma<BF16>(s[0], q[i], r[0], r[1]);
    rk_mma<BF16>(s[1], q[i], r[2], r[3]);
  }
  float x[8];                                               // row g: keys t, t+1, t+8, t+9; then row g + 8
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int half = i / 2 % 2;
    const u32 key = lane % 4 * 2 + half * 8 + i % 2;
    x[i] = key < keys ? s[half][i / 4 * 2 + i % 2] * scale : -RK_INF;
  }
  float factor[2];
  softmax_step(x, row, factor);
  const u32 p[4] = {rk_pack<BF16>(x[0], x[1]), rk_pack<BF16>(x[4], x[5]),
                    rk_pack<BF16>(x[2], x[3]), rk_pack<BF16>(x[6], x[7])};
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    u32 r[4];
    rk_load_matrix_transposed(r, v + swizzled<D>(lane / 8 % 2 * 8 + lane % 8, i * 2 + lane / 16));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float(&d)[4] = o[i * 2 + h];
      d[0] *= factor[0]; d[1] *= factor[0];
      d[2] *= factor[1]; d[3] *= factor[1];
      rk_mma<BF16>(d, p, r[h * 2], r[h * 2 + 1]);
    }
  }
}

// Puts one warp's rows where the block merges them: sums at [warp][row][ROW], then (max, sum) at [warp][row].
template <int D>
RK_DEV void publish(float* shared, u32 warp, u32 lane, const RowState (&row)[2], const float (&o)[D / 8][4]) {
  using S = DecodeShape<D>;
  rk_f2* state = (rk_f2*)(shared + S::WARPS * 16 * S::ROW);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const u32 at = warp * 16 + lane / 4 + 8 * r;
#pragma unroll
    for (int i = 0; i < D / 8; ++i)
      *(rk_f2*)(shared + at * S::ROW + i * 8 + lane % 4 * 2) = rk_f2{o[i][2 * r], o[i][2 * r + 1]};
    float sum = row[r].sum;
    sum += rk_shuffle_xor(sum, 1);
    sum += rk_shuffle_xor(sum, 2);
    if (lane % 4 == 0) state[at] = rk_f2{row[r].max, sum};
  }
}

// Merges the warps' rows and writes them: four columns a thread.
template <int D, bool BF16, class Args>
RK_DEV void write_item(const Args& a, const RkDecodeItem& item, u32 group, const float* shared) {
  using S = DecodeShape<D>;
  const rk_f2* state = (const rk_f2*)(shared + S::WARPS * 16 * S::ROW);
  for (u32 i = RK_THREAD; i < group * (D / 4); i += S::WARPS * 32) {
    const u32 r = i / (D / 4), column = i % (D / 4) * 4;
    float top = -RK_INF;
#pragma unroll
    for (int w = 0; w < S::WARPS; ++w) top = rk_max(top, state[w * 16 + r].x);
    float sum = 0.f;
    rk_f4 o = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int w = 0; w < S::WARPS; ++w) {
      const rk_f2 part = state[w * 16 + r];
      add_part(o, sum, *(const rk_f4*)(shared + (w * 16 + r) * S::ROW + column), part.y, part_factor(part.x, top));
    }
    if (item.part == RK_DIRECT) {
      const u64 row = (u64)item.seq * a.q_heads + item.kv_head * group + r;
      *(rk_u2*)(a.out + row * D + column) = quotient<BF16>(o, sum);
      if (column == 0 && a.lse) a.lse[row] = log_sum(top, sum) * a.lse_scale;
    } else {
      const u64 row = (u64)item.part + r;
      *(rk_f4*)(a.part_o + row * D + column) = o;
      if (column == 0) *(rk_f2*)(a.part_ml + row * 2) = rk_f2{top, sum};
    }
  }
}

// `Args`: RkDecodeArgs or RkTileArgs.
template <int D, bool BF16, class Args> RK_DEV void attend_item(const Args& a, const RkDecodeItem& item) {
  using S = DecodeShape<D>;
  RK_SHARED(u16, shared);
  const u32 lane = RK_THREAD % 32, warp = RK_THREAD / 32;
  const u32 group = a.q_heads / a.kv_heads;
  RK_PROMISE(item.first % 16 == 0 && item.first <= item.end && group <= 16 && item.kv_head < a.kv_heads);
  const u32 tiles = (item.end - item.first + 15) / 16;
  Ring<D> ring = {a.kv, a.table + item.table, shared + warp * S::STAGES * 2 * S::TILE,
                  item.first, item.end, tiles, item.kv_head, warp, lane, 0};
  // The copies of keys and values start before anything waits for the queries.
#pragma unroll
  for (u32 n = 0; n < S::STAGES - 1; ++n) ring.load(n, n);
  u32 q[D / 16][4];
  load_queries<D>(a, item, group, lane, q);
  float o[D / 8][4] = {};
  RowState row[2] = {{-RK_INF, 0.f}, {-RK_INF, 0.f}};
  u32 slot = 0;
  for (u32 n = 0, tile = warp; tile < tiles; ++n, tile += S::WARPS) {
    rk_copy_wait<S::STAGES - 2>();
    rk_warp_barrier();                                      // every lane's copies of this tile are here, and the last slot is free
    ring.load(n + S::STAGES - 1, slot == 0 ? S::STAGES - 1 : slot - 1);
    const u16* k = ring.slots + slot * 2 * S::TILE;
    attend<D, BF16>(k, k + S::TILE, item.end - (item.first + tile * 16), a.scale_log2, lane, q, row, o);
    slot = slot + 1 == S::STAGES ? 0 : slot + 1;
  }
  rk_block_barrier();                                       // the rings are free: the merge uses their memory
  publish<D>((float*)shared, warp, lane, row, o);
  rk_block_barrier();
  write_item<D, BF16>(a, item, group, (const float*)shared);
}
