// rows_wgmma.cuh - the body of `extend` for the products of warpgroups (`wgmma`) of compute capability 9.0.
//
// A thread block has a tile of up to 128 query rows and three warpgroups. Warpgroup 0 is the producer: two of its warps
// copy keys, the other two values. Warpgroups 1 and 2 are the consumers and compute 64 rows each. A step is 128 keys.
// Keys have three stages of shared memory, and values have three. Each stage has two barriers, whose phases alternate:
//
//   FULL   arrived at by the 64 producer threads of the stage, each when its copies into the stage are done
//   EMPTY  arrived at by the 8 consumer warps, each when its products no longer read the stage
//
// The i-th use of a stage is phase i of both barriers. The producer waits for the end of phase i - 1 of EMPTY (the first
// use waits for nothing), starts its copies, and has FULL arrived at when they are done. A consumer waits for the end of
// phase i of FULL, passes a proxy fence, starts products, waits for them, and arrives at EMPTY. Copies write through the
// generic proxy and products read through the async proxy: without the fence between them a product may read what was
// in the stage before.
//
// A consumer starts the products of a step's keys together with those of the values of the step before, and computes the
// softmax of the step while the latter run. The two consumers take turns to start products, by the named barriers 3 and
// 4, so that one computes its softmax while the products of the other run.
//
// Pages are copied 16 bytes at a time. A tensor map of a page of 16 tokens would make the driver's encoder necessary,
// which the stand-in driver of the tests does not have, for copies of 2 KiB each.
#pragma once
#include "rows.cuh"
#include "wgmma.cuh"

template <int D, Kind K> struct HopperShape {
  static constexpr u32 THREADS = 384;
  static constexpr u32 COPIERS = 64;                        // threads that copy keys, and as many copy values
  static constexpr u32 ROWS = 128;
  static constexpr u32 KEYS = 128;                          // of a step
  static constexpr u32 STAGES = 3;
  static constexpr u32 CHUNKS = D / 8;                      // of 16 bytes, of a row
  static constexpr u32 Q_PANEL = ROWS * 128, PANEL = KEYS * 128;
  static constexpr u32 Q_BYTES = D / 64 * Q_PANEL, TILE = D / 64 * PANEL;
  static constexpr u32 BARRIERS = Q_BYTES + 2 * STAGES * TILE;
  static constexpr u32 VIEWS = BARRIERS + 4 * STAGES * 8;   // [limit, position, tree][ROWS]
  static constexpr u32 SHARED = VIEWS + 3 * ROWS * 4;
  static constexpr u32 PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
  static_assert(SHARED <= 227 * 1024, "a thread block has so much shared memory");

  // Addresses in shared memory. `of_values`: 0 for keys, 1 for values.
  static RK_DEV_METHOD u32 tile(u32 base, u32 of_values, u32 stage) { return base + Q_BYTES + (of_values * STAGES + stage) * TILE; }
  static RK_DEV_METHOD u32 full(u32 base, u32 of_values, u32 stage) { return base + BARRIERS + (of_values * STAGES + stage) * 16; }
  static RK_DEV_METHOD u32 empty(u32 base, u32 of_values, u32 stage) { return full(base, of_values, stage) + 8; }
};

// A chunk of a row of a tile in panels of 64 elements, as rk_matrix describes them.
RK_DEV u32 panel_chunk(u32 panel_bytes, u32 row, u32 chunk) {
  return chunk / 8 * panel_bytes + row * 128 + ((chunk ^ row) & 7) * 16;
}

// The use of a stage by a step.
template <u32 STAGES> struct StageUse {
  u32 stage = 0, parity = 0;
  RK_DEV_METHOD void advance() {
    if (++stage == STAGES) { stage = 0; parity ^= 1; }
  }
};

// The keys of a tile: steps begin at multiples of 16.
struct KeyRange { u32 base, first, end, steps; };

template <int D, Kind K> RK_DEV KeyRange key_range(const RkTileArgs& a, const RkTile& tile, u32 group) {
  u32 end = tile.end;
  if (!a.trees) end = rk_min(end, tile.visible + (tile.row_first + tile.rows - 1) / group);
  const u32 base = tile.first & ~15u, keys = HopperShape<D, K>::KEYS;
  return {base, tile.first, end, tile.first < end ? (end - base + keys - 1) / keys : 0};
}

// Half of the producer: two warps copy keys, the other two values, so that neither waits for a stage of the other. A lane has the
// place of one of the step's groups of 16 keys, in units of 16 bytes.
template <int D, Kind K> struct HopperPages {
  using S = HopperShape<D, K>;
  static constexpr u32 GROUPS = S::KEYS / 16, PASS = S::COPIERS / S::CHUNKS;   // rows copied at once

  // The entries of the block table of a step's groups.
  static RK_DEV_METHOD u32 entry(const RkTileArgs& a, u32 table, const KeyRange& range, u32 step) {
    const u32 lane = RK_THREAD % 32, key = range.base + step * S::KEYS + lane * 16;
    return lane < GROUPS && key < range.end ? a.table[table + key / a.kv.block_tokens] : 0;
  }
  // `to`, `from`: the thread's chunk of the first row, of the stage and of block 0. Slots outside of the range become zeros: they may
  // hold NaN, and 0 * NaN is NaN.
  static RK_DEV_METHOD void copy(u32 to, const u8* from, u64 row_bytes, u32 units, bool whole, int left, int before) {
    const auto at = [&](u32 i, u32 j) { return (j % 8 == 0 ? to : to ^ 64) + (i * 16 + j) * 128; };   // the swizzle of row j
    if (whole) {
#pragma unroll
      for (u32 i = 0; i < GROUPS; ++i) {
        const u8* page = from + (u64)rk_shuffle(units, i) * 16;
#pragma unroll
        for (u32 j = 0; j < 16; j += PASS) rk_copy_async_to(at(i, j), page + j * row_bytes);
      }
      return;
    }
#pragma unroll 1
    for (u32 i = 0; i < GROUPS; ++i) {
      const u8* page = from + (u64)rk_shuffle(units, i) * 16;
#pragma unroll
      for (u32 j = 0; j < 16; j += PASS) {
        const int row = (int)(i * 16 + j);
        rk_copy_async_to(at(i, j), page + j * row_bytes, row < left && row >= before);
      }
    }
  }

  static RK_DEV_METHOD void run(const RkTileArgs& a, const RkTile& tile, const KeyRange& range, u32 base, u32 of_values) {
    static_assert(PASS % 4 == 0, "the swizzle of later passes is that of the first one, or its other half");
    const u32 thread = RK_THREAD % S::COPIERS, lane = RK_THREAD % 32, row = thread / S::CHUNKS, chunk = thread % S::CHUNKS;
    const RkPlane& plane = of_values ? a.kv.v : a.kv.k;
    const u64 row_bytes = (u64)plane.token_stride * 2;
    const u8* from = (const u8*)plane.at + (u64)tile.kv_head * plane.head_stride * 2 + row * row_bytes + chunk * 16;
    const u32 to = panel_chunk(S::PANEL, row, chunk), table = tile.table;
    StageUse<S::STAGES> use;
    u32 next = entry(a, table, range, 0);
#pragma unroll 1
    for (u32 step = 0; step < range.steps; ++step, use.advance()) {
      const u32 key = range.base + step * S::KEYS, block = next, in_block = (key + lane * 16) % a.kv.block_tokens;
      const u32 units = token_unit<2>(a.kv, plane, block, in_block);
      next = entry(a, table, range, step + 1);
      const bool whole = key >= range.first && key + S::KEYS <= range.end;
      const int left = (int)(range.end - key) - (int)row, before = (int)(range.first - key) - (int)row;
      const u32 empty = S::empty(base, of_values, use.stage), full = S::full(base, of_values, use.stage);
      rk_phase_wait(empty, use.parity ^ 1);
      copy(S::tile(base, of_values, use.stage) + to, from, row_bytes, units, whole, left, before);
      rk_phase_arrive_copied(full);
    }
    rk_copy_wait_all();                                     // no thread ends before its copies
  }
};

// A consumer thread has rows `row` and `row + 8` of the tile, and of each 8 columns the two from lane % 4 * 2 on.
template <int D, Kind K> struct HopperConsumer {
  using S = HopperShape<D, K>;
  static constexpr u32 N = S::KEYS / 8;
  static constexpr bool BF16 = Element<K>::BF16;
  float o[D / 8][4];
  float max[2];            // of the scores, or up to ROOM below it
  float sum[2];

  static RK_DEV_METHOD void scores(float (&s)[N][4], u32 q, u32 k) {
#pragma unroll
    for (u32 d = 0; d < D / 16; ++d)
      rk_products<BF16>(s, rk_matrix(q, 0) + (d / 4 * S::Q_PANEL + d % 4 * 32) / 16, rk_matrix(k, 0) + (d / 4 * S::PANEL + d % 4 * 32) / 16, d > 0);
    rk_products_commit();
  }
  RK_DEV_METHOD void add_values(const u32 (&p)[N / 2][4], u32 v) {
#pragma unroll
    for (u32 k = 0; k < N / 2; ++k) rk_products<BF16>(o, p[k], rk_matrix(v, S::PANEL) + k * 16 * 128 / 16);
    rk_products_commit();
  }
  static RK_DEV_METHOD void pack(const float (&s)[N][4], u32 (&p)[N / 2][4]) {
#pragma unroll
    for (u32 k = 0; k < N / 2; ++k)
#pragma unroll
      for (u32 i = 0; i < 4; ++i) p[k][i] = rk_pack<BF16>(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
  }

  // Scores become exp2(scale * (score - max)); `factor`: what brings earlier sums to a maximum that moved. Returns whether one of the
  // thread's moved.
  RK_DEV_METHOD bool softmax(float (&s)[N][4], float scale, float (&factor)[2]) {
    float tops[2][4], base[2];
    bool moved = false;
#pragma unroll
    for (u32 n = 0; n < N; ++n)                             // four chains a row: a maximum takes twice the time of its latency
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        float& top = tops[i / 2][n % 2 * 2 + i % 2];
        top = n < 2 ? s[n][i] : rk_max(top, s[n][i]);
      }
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      float top = rk_max(rk_max(tops[r][0], tops[r][1]), rk_max(tops[r][2], tops[r][3]));
      top = rk_max(top, rk_shuffle_xor(top, 1));
      top = rk_max(top, rk_shuffle_xor(top, 2));
      const bool moves = !((top - max[r]) * scale < ROOM);
      moved |= moves;
      if (!moves) top = max[r];
      base[r] = top == -RK_INF ? 0.f : top * scale;         // a row that has seen no key yet
      factor[r] = rk_exp2(rk_fma(max[r], scale, -base[r]));
      max[r] = top;
    }
#pragma unroll
    for (u32 n = 0; n < N; ++n)
#pragma unroll
      for (u32 i = 0; i < 4; ++i) s[n][i] = rk_exp2(rk_fma(s[n][i], scale, -base[i / 2]));
    return moved;
  }
  // Waits for the products of values, and rescales their sums. In nearly all steps no maximum moves. Each side of the branch has its own
  // wait: the compiler would move the only one before the softmax.
  RK_DEV_METHOD void wait_and_rescale(bool moved, const float (&factor)[2]) {
    if (rk_ballot(moved) == 0) {
      rk_products_wait<0>(o);
      return;
    }
    rk_products_wait_again<0>(o);
#pragma unroll
    for (u32 n = 0; n < D / 8; ++n)
#pragma unroll
      for (u32 i = 0; i < 4; ++i) o[n][i] *= factor[i / 2];
  }
  // Adds the weights of a step. Apart from the softmax, whose exponentials would wait for it.
  RK_DEV_METHOD void add_weights(const float (&s)[N][4], const float (&factor)[2]) {
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      float part[2] = {0.f, 0.f};
#pragma unroll
      for (u32 n = 0; n < N; ++n)
#pragma unroll
        for (u32 i = 0; i < 2; ++i) part[i] += s[n][r * 2 + i];
      sum[r] = rk_fma(sum[r], factor[r], part[0] + part[1]);
    }
  }

  RK_DEV_METHOD void run(const RkTileArgs& a, const RkTile& tile, const KeyRange& range, u32 group, u8* shared, u32 base, u32 consumer);
  RK_DEV_METHOD void write_direct(const RkTileArgs& a, const RkTile& tile, u32 group, u8* shared, u32 first_row, u32 lane, float scale);
  RK_DEV_METHOD void write_part(const RkTileArgs& a, const RkTile& tile, u32 first_row, u32 lane, float scale) const;
};

template <int D, Kind K>
RK_DEV_METHOD void HopperConsumer<D, K>::run(const RkTileArgs& a, const RkTile& tile, const KeyRange& range, u32 group, u8* shared, u32 base,
                                      u32 consumer) {
  const u32 thread = RK_THREAD % 128, lane = RK_THREAD % 32, first_row = consumer * 64 + thread / 32 * 16, row = first_row + lane / 4;
  u32* views = (u32*)(shared + S::VIEWS);
#pragma unroll
  for (u32 n = 0; n < D / 8; ++n)
#pragma unroll
    for (u32 i = 0; i < 4; ++i) o[n][i] = 0.f;
#pragma unroll
  for (u32 r = 0; r < 2; ++r) { max[r] = -RK_INF; sum[r] = 0.f; }
  // Each consumer copies its own queries.
#pragma unroll 1
  for (u32 unit = thread; unit < 64 * S::CHUNKS; unit += 128) {
    const u32 at = consumer * 64 + unit / S::CHUNKS, chunk = unit % S::CHUNKS;
    const bool valid = at < tile.rows;
    const RowPlace place = row_place<Rows::CHUNK>(a, tile, group, valid ? at : 0);
    rk_copy_async_to(base + panel_chunk(S::Q_PANEL, at, chunk), a.q + place.token * a.q_stride + (u64)place.head * D + chunk * 8, valid);
  }
  if (thread < 64) {
    const u32 at = consumer * 64 + thread;
    const RowView view = row_view<Rows::CHUNK>(a, tile, group, rk_min(at, tile.rows - 1));
    views[at] = view.limit;
    views[S::ROWS + at] = view.position;
    views[2 * S::ROWS + at] = view.tree;
  }
  rk_copy_wait_all();
  rk_fence_products();
  rk_named_barrier(1 + consumer, 128);

  const bool scored = a.scoring.cap != 0.f || a.scoring.slopes;
  const float scale = scored ? 1.f : a.scale_log2;
  const u32 window = a.scoring.window, tile_first = range.first;
  // Steps inside of [low, high) are seen whole by all rows of the warp. Positions ascend, but for those of trees.
  const int behind = (int)(views[S::ROWS + first_row + 15] - window);
  const int low = a.trees && window != RK_NO_WINDOW ? 0x7fffffff : behind > (int)tile_first ? behind : (int)tile_first;
  const u32 high = views[first_row];
  const auto scored_and_masked = [&](float (&s)[N][4], u32 step) {
    const u32 key0 = range.base + step * S::KEYS;
    float (&as_rows)[1][N][4] = *(float (*)[1][N][4])&s;
    if (scored) score_rows<1, N>(a, views + S::ROWS, row, key0, lane, as_rows);
    if ((int)key0 < low || key0 + S::KEYS > high) mask_scores<S::ROWS, 1, N>(views, tile_first, window, row, key0, lane, as_rows);
  };
  const u32 q = base + consumer * 64 * 128, turn = 3 + consumer, other = 4 - consumer;
  u32 p[N / 2][4];
  float s[N][4], factor[2];
  StageUse<S::STAGES> of_keys, of_values;
  if (range.steps > 0) {
    rk_phase_wait(S::full(base, 0, 0), 0);
    rk_fence_products();
    rk_products_begin();
    scores(s, q, S::tile(base, 0, 0));
    rk_products_wait<0>(s);
    if (lane == 0) rk_phase_arrive(S::empty(base, 0, 0));
    if (consumer == 1 && range.steps > 1) rk_named_arrive(other, 256);
    scored_and_masked(s, 0);
    softmax(s, scale, factor);
    add_weights(s, factor);
    pack(s, p);
#pragma unroll 1
    for (u32 step = 1; step < range.steps; ++step, of_values.advance()) {
      of_keys.advance();
      rk_phase_wait(S::full(base, 0, of_keys.stage), of_keys.parity);
      rk_phase_wait(S::full(base, 1, of_values.stage), of_values.parity);
      rk_fence_products();
      rk_named_barrier(turn, 256);
      rk_products_begin();
      scores(s, q, S::tile(base, 0, of_keys.stage));
      add_values(p, S::tile(base, 1, of_values.stage));
      if (consumer == 0 || step + 1 < range.steps) rk_named_arrive(other, 256);
      rk_products_wait<1>(s);
      if (lane == 0) rk_phase_arrive(S::empty(base, 0, of_keys.stage));
      scored_and_masked(s, step);
      const bool moved = softmax(s, scale, factor);
      wait_and_rescale(moved, factor);
      if (lane == 0) rk_phase_arrive(S::empty(base, 1, of_values.stage));
      add_weights(s, factor);
      pack(s, p);
    }
    rk_phase_wait(S::full(base, 1, of_values.stage), of_values.parity);
    rk_fence_products();
    rk_products_begin();
    add_values(p, S::tile(base, 1, of_values.stage));
    rk_products_wait<0>(o);
  }
#pragma unroll
  for (u32 r = 0; r < 2; ++r) {
    sum[r] += rk_shuffle_xor(sum[r], 1);
    sum[r] += rk_shuffle_xor(sum[r], 2);
  }
  if (tile.part == RK_DIRECT) {
    rk_named_barrier(1 + consumer, 128);                    // no products of the warpgroup read its queries any more
    write_direct(a, tile, group, shared, first_row, lane, scale);
  } else write_part(a, tile, first_row, lane, scale);
}

// For the only item of its rows: results pass through the memory of the warp's own queries, to be written 16 bytes at a time.
template <int D, Kind K>
RK_DEV_METHOD void HopperConsumer<D, K>::write_direct(const RkTileArgs& a, const RkTile& tile, u32 group, u8* shared, u32 first_row, u32 lane,
                                               float scale) {
#pragma unroll
  for (u32 r = 0; r < 2; ++r) {
    const u32 row = first_row + lane / 4 + 8 * r;
    const RowPlace place = row_place<Rows::CHUNK>(a, tile, group, rk_min(row, tile.rows - 1));
    float top = max[r] * scale;
    const float factor = add_sink(a.scoring.sinks, place.head, top, sum[r]);
    const float part = sum[r] > 0.f ? factor / sum[r] : sum[r] == sum[r] ? 0.f : sum[r];
#pragma unroll
    for (u32 n = 0; n < D / 8; ++n)
      *(u32*)(shared + panel_chunk(S::Q_PANEL, row, n) + lane % 4 * 4) = rk_pack<BF16>(o[n][r * 2] * part, o[n][r * 2 + 1] * part);
    if (lane % 4 == 0 && a.lse && row < tile.rows) a.lse[place.token * a.q_heads + place.head] = log_sum(top, sum[r]) * a.lse_scale;
  }
  rk_warp_barrier();
#pragma unroll 1
  for (u32 i = lane; i < 16 * S::CHUNKS; i += 32) {
    const u32 row = first_row + i / S::CHUNKS, chunk = i % S::CHUNKS;
    if (row >= tile.rows) break;
    const RowPlace place = row_place<Rows::CHUNK>(a, tile, group, row);
    *(rk_u4*)(a.out + (place.token * a.q_heads + place.head) * D + chunk * 8) = *(const rk_u4*)(shared + panel_chunk(S::Q_PANEL, row, chunk));
  }
}

template <int D, Kind K>
RK_DEV_METHOD void HopperConsumer<D, K>::write_part(const RkTileArgs& a, const RkTile& tile, u32 first_row, u32 lane, float scale) const {
#pragma unroll
  for (u32 r = 0; r < 2; ++r) {
    const u32 row = first_row + lane / 4 + 8 * r;
    if (row >= tile.rows) continue;
    const u64 at = (u64)tile.part + row;
#pragma unroll
    for (u32 n = 0; n < D / 8; ++n) *(rk_f2*)(a.part_o + at * D + n * 8 + lane % 4 * 2) = rk_f2{o[n][r * 2], o[n][r * 2 + 1]};
    if (lane % 4 == 0) *(rk_f2*)(a.part_ml + at * 2) = rk_f2{max[r] * scale, sum[r]};
  }
}

template <int D, Kind K> RK_DEV void attend_rows_wgmma(const RkTileArgs& a) {
  using S = HopperShape<D, K>;
  RK_SHARED_1024(u8, shared);
  const u32 base = rk_shared_address(shared), warpgroup = rk_shuffle(RK_THREAD / 128, 0), group = a.q_heads / a.kv_heads;
  const RkTile& tile = a.tiles[RK_BLOCK_X];
  const KeyRange range = key_range<D, K>(a, tile, group);
  if (RK_THREAD < 2 * S::STAGES) {
    const u32 full = base + S::BARRIERS + RK_THREAD * 16;
    rk_phase_init(full, S::COPIERS);
    rk_phase_init(full + 8, 8);
  }
  rk_block_barrier();
  if (warpgroup == 0) {
    rk_give_registers<S::PRODUCER_REGISTERS>();
    HopperPages<D, K>::run(a, tile, range, base, rk_shuffle(RK_THREAD / S::COPIERS, 0));
  } else {
    rk_take_registers<S::CONSUMER_REGISTERS>();
    HopperConsumer<D, K> consumer;
    consumer.run(a, tile, range, group, shared, base, warpgroup - 1);
  }
}
