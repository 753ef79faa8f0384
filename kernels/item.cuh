// item.cuh - attention of one new token of a sequence over the keys [first, end): the body of `decode`, and of the tiles of
// `cascade` that are one sequence's. A block of threads takes the query heads of one key-value head (at most 16), or of two (at most 8
// each), which are the 16 rows of the tensor cores' tile. Each warp walks its own tiles of 16 keys through its own ring of shared memory, so
// that the loop needs no barrier of the block; the warps' results are merged at the end.
#pragma once
#include "tile.cuh"

// An item of HEADS key-value heads, of D elements of keys and V of values. With two heads, rows 0 to 7
// are query heads of the first, rows 8 to 15 those of the second. A tile of two heads of 8 bits has
// as many bytes as one of 16 bits, with one step of the softmax: 2 to 4 % faster (RESULTS.md).
template <int D, int V, Kind K, int HEADS = 1> struct DecodeShape {
  using E = Element<K>;
  using Keys = TileLayout<HEADS * D, E::BYTES>;
  using Values = TileLayout<HEADS * V, E::BYTES>;
  static_assert(HEADS == 1 || (HEADS == 2 && E::SCALED), "two heads are of 8 bits");
  static constexpr u32 WARPS = Keys::ROW + Values::ROW > 32 ? 2 : 4;
  static constexpr u32 KEYS_BYTES = 16 * Keys::ROW_BYTES, VALUES_BYTES = 16 * Values::ROW_BYTES;
  // Of each head: scales of 16 keys, then of 16 values.
  static constexpr u32 SCALES_BYTES = E::SCALED ? HEADS * 128 : 0;
  static constexpr u32 SLOT = KEYS_BYTES + VALUES_BYTES + SCALES_BYTES;
  // 96 KiB a block at most, two blocks a multiprocessor; of elements of 8 bits fewer, which are as many keys in flight and more. For
  // two heads 99 KiB, the limit of a block on devices such as 8.6 and 8.9.
  static constexpr u32 STAGES = (HEADS == 2 ? 99 * 1024 : E::SCALED ? 88 * 1024 : 96 * 1024) / (WARPS * SLOT);
  static constexpr u32 SHARED = WARPS * STAGES * SLOT;
  static constexpr u32 ROW = V + 8;                         // floats between rows of the merge; the 8 spread the banks
  static_assert(STAGES >= 2 && WARPS * 16 * (ROW + 2) * 4 <= SHARED, "the merge uses the rings' memory");
};

// The ring of one warp. Where 16 keys lie in one block a lane has the table entry of one of the next 32 tiles; otherwise that of one
// of the 32 keys of the next two tiles, and of the two after those.
template <int D, int V, Kind K, int HEADS> struct Ring {
  using S = DecodeShape<D, V, K, HEADS>;
  const RkKv& kv;
  const u32* table;        // of this sequence
  u8* slots;
  u32 base, first, end, tiles;   // tiles of 16 keys from `base` on
  u32 kv_head, warp, lane;       // kv_head: the item's first head
  u32 blocks, ahead;       // this lane's entries

  static constexpr bool EVEN = 32 % S::Keys::CHUNKS == 0 && 32 % S::Values::CHUNKS == 0;

  RK_DEV_METHOD u32 entry(u32 n) const {
    const u32 key = token_key(n);
    return key < end ? table[key / kv.block_tokens] : 0;
  }
  // This lane's key of the tiles n and n + 1, n being even.
  RK_DEV_METHOD u32 token_key(u32 n) const { return base + (warp + (n + lane / 16) * S::WARPS) * 16 + lane % 16; }

  // Bytes from a row of the first head to a chunk of it, or of the row of the second head.
  template <class L> RK_DEV_METHOD u32 chunk_offset(const RkPlane& plane, u32 chunk) const {
    constexpr u32 EACH = L::CHUNKS / HEADS;
    return HEADS == 1 ? chunk * 16 : chunk / EACH * plane.head_stride * S::E::BYTES + chunk % EACH * 16;
  }
  // Copies the 16 rows of a tile that begin at `page`.
  template <class L> RK_DEV_METHOD void copy_rows(u8* to, const RkPlane& plane, u64 page, u32 key) const {
    using E = typename S::E;
    const u8* from = (const u8*)plane.at + page * E::BYTES;
#pragma unroll
    for (u32 i = 0; i < 16 * L::CHUNKS / 32; ++i) {
      const u32 unit = i * 32 + lane, row = unit / L::CHUNKS, chunk = unit % L::CHUNKS;
      const bool valid = key + row >= first && key + row < end;   // another slot may hold NaN, and 0 * NaN is NaN
      rk_copy_async(to + L::at(row, chunk), from + (u64)row * plane.token_stride * E::BYTES + chunk_offset<L>(plane, chunk), valid);
    }
  }
  // The same for rows anywhere: lane `lanes + row` has the unit of row `row`.
  template <class L> RK_DEV_METHOD void copy_tokens(u8* to, const RkPlane& plane, u32 mine, u32 lanes, u32 key) const {
    using E = typename S::E;
    const u8* from = (const u8*)plane.at + (u64)kv_head * plane.head_stride * E::BYTES;
#pragma unroll
    for (u32 i = 0; i < 16 * L::CHUNKS / 32; ++i) {
      const u32 unit = i * 32 + lane, row = unit / L::CHUNKS, chunk = unit % L::CHUNKS;
      const u64 at = (u64)rk_shuffle(mine, lanes + row) * 16;
      rk_copy_async(to + L::at(row, chunk), from + at + chunk_offset<L>(plane, chunk), key + row < end);
    }
  }
  // Lanes 0 to 15 copy the scales of keys, the others those of values.
  RK_DEV_METHOD void copy_scales(u8* to, u64 offset, u32 key) const {
    const float* from = (lane < 16 ? kv.k.scale : kv.v.scale) + offset;
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h)
      rk_copy_async_word(to + (h * 32 + lane) * 4, from + h * kv.scale_head_stride, key >= first && key < end);
  }

  // Starts the copy of the warp's n-th tile into slot `slot`; n counts up from 0 without gaps.
  RK_DEV_METHOD void load(u32 n, u32 slot) {
    const u32 tile = warp + n * S::WARPS, key = base + tile * 16;
    u8* k = slots + slot * S::SLOT;
    u8* v = k + S::KEYS_BYTES;
    u8* scales = v + S::VALUES_BYTES;
    if (EVEN && whole_tiles(kv)) {
      if ((n & 31) == 0) {
        const u32 mine = warp + (n + lane) * S::WARPS;
        if (mine < tiles) blocks = table[(base + mine * 16) / kv.block_tokens];
      }
      if (tile < tiles) {
        const u32 block = rk_shuffle(blocks, n & 31), in_block = key % kv.block_tokens;
        copy_rows<typename S::Keys>(k, kv.k, page_offset(kv, kv.k, block, in_block, kv_head), key);
        copy_rows<typename S::Values>(v, kv.v, page_offset(kv, kv.v, block, in_block, kv_head), key);
        if (S::E::SCALED) copy_scales(scales, scale_offset(kv, block, in_block + lane % 16, kv_head), key + lane % 16);
      }
    } else {
      if (n % 2 == 0) {
        blocks = n == 0 ? entry(0) : ahead;
        ahead = entry(n + 2);
      }
      if (tile < tiles) {
        const u32 in_block = token_key(n & ~1u) % kv.block_tokens, lanes = n % 2 * 16;
        copy_tokens<typename S::Keys>(k, kv.k, token_unit<S::E::BYTES>(kv, kv.k, blocks, in_block), lanes, key);
        copy_tokens<typename S::Values>(v, kv.v, token_unit<S::E::BYTES>(kv, kv.v, blocks, in_block), lanes, key);
        if (S::E::SCALED) {
          const u32 from = lanes + lane % 16, block = rk_shuffle(blocks, from);
          copy_scales(scales, scale_offset(kv, block, rk_shuffle(in_block, from), kv_head), key + lane % 16);
        }
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
    top = rk_max(row[r].max, top);
    const float base = top == -RK_INF ? 0.f : top;          // scores beyond the range of a float
    factor[r] = rk_exp2(row[r].max - base);                 // first tile: exp2(-inf) = 0
    row[r].max = top;
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] = rk_exp2(s[i] - base);
    row[r].sum = row[r].sum * factor[r] + ((s[0] + s[1]) + (s[2] + s[3]));
  }
}

// The queries of an item, as products need them: sixteen elements of sixteen rows at a time. Where registers do not hold
// them they are read again for each tile.
template <int D, int V, Kind K, int HEADS = 1> struct ItemQueries {
  static constexpr bool KEPT = D + V <= 320;
  const u16* from;
  u32 group;               // query heads of a key-value head
  u32 kept[KEPT ? D / 16 : 1][4];
  float unit[2];           // of the thread's two rows, where they are f16

  // Elements of 8 bits come in another order: four neighbours a lane.
  RK_DEV_METHOD void read(u32 block, u32 lane, u32 (&q)[4]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const u32 row = HEADS == 2 ? lane / 4 : lane / 4 + 8 * r;
      const u16* at = from + (HEADS == 2 ? r * group + row : row) * D + block * 16;
      if (Element<K>::SCALED) {
        const rk_u2 four = row < group ? *(const rk_u2*)(at + lane % 4 * 4) : rk_u2{0, 0};
        q[r] = four.x;
        q[r + 2] = four.y;
      } else {
        q[r] = row < group ? *(const u32*)(at + lane % 4 * 2) : 0u;
        q[r + 2] = row < group ? *(const u32*)(at + lane % 4 * 2 + 8) : 0u;
      }
    }
  }
  RK_DEV_METHOD void keep(u32 lane) {
    if constexpr (KEPT) {
#pragma unroll
      for (int k = 0; k < D / 16; ++k) read(k, lane, kept[k]);
      if (Element<K>::SCALED) to_f16();
    }
  }
  // Rows become f16, in units that bring their largest element to 2^14.
  RK_DEV_METHOD void to_f16() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = 0.f;
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        const u32 magnitudes = kept[i / 2][r + i % 2 * 2] & 0x7fff7fffu;
        top = rk_max(top, rk_max(low_bf16(magnitudes), high_bf16(magnitudes)));
      }
      top = rk_max(top, rk_shuffle_xor(top, 1));
      top = rk_max(top, rk_shuffle_xor(top, 2));
      const u32 biased = as_bits(top) >> 23, exponent = biased < 15 ? 15 : biased;
      const float down = as_float((268 - exponent) << 23);
      unit[r] = as_float((exponent - 14) << 23);
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        u32& pair = kept[i / 2][r + i % 2 * 2];
        pair = rk_pack<false>(low_bf16(pair) * down, high_bf16(pair) * down);
      }
    }
  }
  RK_DEV_METHOD void get(u32 block, u32 lane, u32 (&q)[4]) const {
    if constexpr (KEPT) {
#pragma unroll
      for (int i = 0; i < 4; ++i) q[i] = kept[block][i];
    } else {
      read(block, lane, q);
    }
  }
};

// Scores of a tile: products of 16 queries with 16 keys of each head.
template <int D, int V, Kind K, int HEADS>
RK_DEV void products(const u8* k, u32 lane, const ItemQueries<D, V, K, HEADS>& queries, float (&scores)[HEADS][2][4]) {
  using L = TileLayout<HEADS * D, Element<K>::BYTES>;
  constexpr u32 EACH = L::CHUNKS / 2 / HEADS;
  const u32 at = L::at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  const u32 reader = ItemQueries<D, V, K, HEADS>::KEPT ? lane : rk_anew(lane);
#pragma unroll
  for (u32 i = 0; i < L::CHUNKS / 2; ++i) {
    u32 r[4], q[Element<K>::SCALED ? 2 : 1][4];
    float(&s)[2][4] = scores[i / EACH];
    rk_load_matrix(r, k + L::further(at, i * 2));
    if constexpr (Element<K>::SCALED) {
      queries.get(i % EACH * 2, reader, q[0]);
      queries.get(i % EACH * 2 + 1, reader, q[1]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {                         // keys 0 to 7 in two chunks, then keys 8 to 15
        u32 first, second;
        to_f16_pairs<K>(r[j], first, second);
        rk_mma<false>(s[j / 2], q[j % 2], first, second);
      }
    } else {
      queries.get(i, reader, q[0]);
      rk_mma<Element<K>::ITEM_BF16>(s[0], q[0], r[0], r[1]);
      rk_mma<Element<K>::ITEM_BF16>(s[1], q[0], r[2], r[3]);
    }
  }
}

// Adds the values of a tile with the weights `p`. A thread has columns 2t and 2t + 1 of each eight; of elements of 8 bits, 4t and
// 4t + 2 of each sixteen, then 4t + 1 and 4t + 3.
template <int V, Kind K, int HEADS>
RK_DEV void add_values(const u8* v, u32 lane, const u32 (&p)[4], const float (&factor)[2], float (&o)[V / 8][4]) {
  using L = TileLayout<HEADS * V, Element<K>::BYTES>;
  // Values of one of two heads are multiplied by the weights of its own rows, and by zeros for the rows of the other head. So a NaN
  // in an element makes that element NaN in the outputs of both heads.
  const u32 weights[2][4] = {{p[0], HEADS == 2 ? 0 : p[1], p[2], HEADS == 2 ? 0 : p[3]}, {0, p[1], 0, p[3]}};
  const u32 at = L::at(lane / 8 % 2 * 8 + lane % 8, lane / 16);
  constexpr u32 EACH = Element<K>::SCALED ? 4 : 2;          // of eight columns, in two chunks
#pragma unroll
  for (u32 i = 0; i < L::CHUNKS / 2; ++i) {
    const u32 head = i / (L::CHUNKS / 2 / HEADS), first = i % (L::CHUNKS / 2 / HEADS) * EACH;
    u32 r[4], b[EACH][2];
    rk_load_matrix_transposed(r, v + L::further(at, i * 2));
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      // Bytes are two columns of a row, then of the next one; a pair has one column.
      if constexpr (Element<K>::SCALED) to_f16_pairs<K>(rk_bytes(r[j], 0, 0x3120), b[j / 2 * 2][j % 2], b[j / 2 * 2 + 1][j % 2]);
      else b[j / 2][j % 2] = r[j];
    }
#pragma unroll
    for (u32 h = 0; h < EACH; ++h) {
      float(&d)[4] = o[first + h];
      if (head == 0) {
        d[0] *= factor[0]; d[1] *= factor[0];
        d[2] *= factor[1]; d[3] *= factor[1];
      }
      rk_mma<Element<K>::ITEM_BF16>(d, weights[head], b[h][0], b[h][1]);
    }
  }
}

// What a model does with the scores of a tile, whose first key is `key`. `heads`: the query heads of the thread's two rows.
RK_DEV void score(const RkScoring& scoring, u32 key, u32 position, u32 lane, const u32 (&heads)[2], float (&x)[8]) {
  if (scoring.cap != 0.f) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = capped(scoring, x[i]);
  }
  if (scoring.slopes) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int away = (int)(position - 1 - (key + lane % 4 * 2 + i / 2 % 2 * 8 + i % 2));
      x[i] = rk_fma(-scoring.slopes[heads[i / 4]], (float)away, x[i]);
    }
  }
}

// The unit of a row's sums of values that have scales: a power of two, so that weights times scales
// fit f16. `past` is the unit less what weights lost since it was chosen, as maxima rose.
struct ValueUnit {
  float of, past;
  // Takes in a row's weights of a tile times their scales, which become f16; `factor` becomes what
  // the row's sums are multiplied by.
  RK_DEV_METHOD void take(float* x, float& factor) {
    float top = rk_max(rk_max(x[0], x[1]), rk_max(x[2], x[3]));
    past *= factor;
    if (rk_ballot(top > 32768.f * of || 256.f * past < of) != 0) {   // seldom
      top = rk_max(top, rk_shuffle_xor(top, 1));
      top = rk_max(top, rk_shuffle_xor(top, 2));
      top = rk_max(top, 256.f * past);
      const u32 biased = as_bits(top) >> 23, exponent = biased < 9 ? 9 : rk_min(biased, 253);
      factor = factor * of * as_float((262 - exponent) << 23);
      of = past = as_float((exponent - 8) << 23);           // the largest is 2^8 of it
    }
    const float inverse = as_float((254u << 23) - as_bits(of));
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] *= inverse;
  }
};

// One tile: scores, softmax, sum of values. Keys outside of [from, to) of its 16 do not count.
template <int D, int V, Kind K, int HEADS, class Args>
RK_DEV void attend(const Args& a, const RkDecodeItem& item, const u8* k, u32 key, u32 from, u32 to, u32 group, u32 lane,
                   const ItemQueries<D, V, K, HEADS>& q, RowState (&row)[2], ValueUnit (&unit)[2], float (&o)[V / 8][4]) {
  using S = DecodeShape<D, V, K, HEADS>;
  float s[HEADS][2][4] = {};
  products<D, V, K, HEADS>(k, lane, q, s);
  const float* scales = (const float*)(k + S::KEYS_BYTES + S::VALUES_BYTES);
  float x[8];                                               // row g: keys t, t+1, t+8, t+9; then row g + 8
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int half = i / 2 % 2;
    const int head = HEADS == 2 ? i / 4 : 0;
    const float scale =
        S::E::SCALED ? scales[head * 32 + lane % 4 * 2 + half * 8 + i % 2] * (a.scale_log2 * q.unit[i / 4]) : a.scale_log2;
    x[i] = s[head][half][i / 4 * 2 + i % 2] * scale;
  }
  if (a.scoring.cap != 0.f || a.scoring.slopes) {
    const u32 head = item.kv_head * HEADS * group, of_row = rk_min(lane / 4, group - 1);
    const u32 heads[2] = {head + of_row, head + (HEADS == 2 ? group + of_row : rk_min(lane / 4 + 8, group - 1))};
    score(a.scoring, key, item.position, lane, heads, x);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const u32 place = lane % 4 * 2 + i / 2 % 2 * 8 + i % 2;
    x[i] = place >= from && place < to ? x[i] : -RK_INF;
  }
  float factor[2];
  softmax_step(x, row, factor);
  if (S::E::SCALED) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] *= scales[(HEADS == 2 ? i / 4 * 32 : 0) + 16 + lane % 4 * 2 + i / 2 % 2 * 8 + i % 2];
#pragma unroll
    for (int r = 0; r < 2; ++r) unit[r].take(x + 4 * r, factor[r]);
  }
  constexpr bool BF16 = S::E::ITEM_BF16;
  const u32 p[4] = {rk_pack<BF16>(x[0], x[1]), rk_pack<BF16>(x[4], x[5]),
                    rk_pack<BF16>(x[2], x[3]), rk_pack<BF16>(x[6], x[7])};
  add_values<V, K, HEADS>(k + S::KEYS_BYTES, lane, p, factor, o);
}

// Puts one warp's rows where the block merges them: sums at [warp][row][ROW], then (max, sum) at [warp][row].
template <int D, int V, Kind K, int HEADS>
RK_DEV void publish(float* shared, u32 warp, u32 lane, const RowState (&row)[2], const float (&o)[V / 8][4]) {
  using S = DecodeShape<D, V, K, HEADS>;
  rk_f2* state = (rk_f2*)(shared + S::WARPS * 16 * S::ROW);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const u32 at = warp * 16 + lane / 4 + 8 * r;
    float* to = shared + at * S::ROW;
    if (S::E::SCALED) {
#pragma unroll
      for (int i = 0; i < V / 16; ++i)
        *(rk_f4*)(to + i * 16 + lane % 4 * 4) =
            rk_f4{o[2 * i][2 * r], o[2 * i + 1][2 * r], o[2 * i][2 * r + 1], o[2 * i + 1][2 * r + 1]};
    } else {
#pragma unroll
      for (int i = 0; i < V / 8; ++i) *(rk_f2*)(to + i * 8 + lane % 4 * 2) = rk_f2{o[i][2 * r], o[i][2 * r + 1]};
    }
    float sum = row[r].sum;
    sum += rk_shuffle_xor(sum, 1);
    sum += rk_shuffle_xor(sum, 2);
    if (lane % 4 == 0) state[at] = rk_f2{row[r].max, sum};
  }
}

// Merges the warps' rows and writes them: four columns a thread.
template <int D, int V, Kind K, int HEADS, class Args>
RK_DEV void write_item(const Args& a, const RkDecodeItem& item, u32 group, const float* shared) {
  using S = DecodeShape<D, V, K, HEADS>;
  const rk_f2* state = (const rk_f2*)(shared + S::WARPS * 16 * S::ROW);
  for (u32 i = RK_THREAD; i < HEADS * group * (V / 4); i += RK_THREADS) {
    const u32 query = i / (V / 4), column = i % (V / 4) * 4;
    const u32 r = HEADS == 2 && query >= group ? query - group + 8 : query;   // its row of the tile
    float top = -RK_INF;
#pragma unroll
    for (u32 w = 0; w < S::WARPS; ++w) top = rk_max(top, state[w * 16 + r].x);
    float sum = 0.f;
    rk_f4 o = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (u32 w = 0; w < S::WARPS; ++w) {
      const rk_f2 part = state[w * 16 + r];
      add_part(o, sum, *(const rk_f4*)(shared + (w * 16 + r) * S::ROW + column), part.y, part_factor(part.x, top));
    }
    if (item.part == RK_DIRECT) {
      const u32 head = item.kv_head * HEADS * group + query;
      const u64 row = (u64)item.seq * a.q_heads + head;
      const float factor = add_sink(a.scoring.sinks, head, top, sum);
      o.x *= factor; o.y *= factor; o.z *= factor; o.w *= factor;
      *(rk_u2*)(a.out + row * V + column) = quotient<S::E::BF16>(o, sum);
      if (column == 0 && a.lse) a.lse[row] = log_sum(top, sum) * a.lse_scale;
    } else {
      const u64 row = (u64)item.part + query;
      *(rk_f4*)(a.part_o + row * V + column) = o;
      if (column == 0) *(rk_f2*)(a.part_ml + row * 2) = rk_f2{top, sum};
    }
  }
}

// `Args`: RkDecodeArgs or RkTileArgs. With HEADS = 2, `item.kv_head` is the index of a pair and `a.kv_heads` the number of pairs.
template <int D, int V, Kind K, int HEADS = 1, class Args> RK_DEV void attend_item(const Args& a, const RkDecodeItem& item) {
  using S = DecodeShape<D, V, K, HEADS>;
  RK_SHARED(u8, shared);
  const u32 lane = RK_THREAD % 32, warp = RK_THREAD / 32;
  const u32 group = a.q_heads / a.kv_heads / HEADS;
  RK_PROMISE(item.first <= item.end && item.end <= item.position && group <= 16 / HEADS && item.kv_head < a.kv_heads);
  const u32 base = Ring<D, V, K, HEADS>::EVEN && whole_tiles(a.kv) ? item.first & ~15u : item.first;
  // Large tiles are those of fewer warps; the others only merge.
  const u32 tiles = item.first < item.end && warp < S::WARPS ? (item.end - base + 15) / 16 : 0;
  Ring<D, V, K, HEADS> ring = {a.kv, a.table + item.table, shared + warp % S::WARPS * S::STAGES * S::SLOT,
                        base, item.first, item.end, tiles, item.kv_head * HEADS, warp, lane, 0, 0};
  // The copies of keys and values start before anything waits for the queries.
#pragma unroll
  for (u32 n = 0; n < S::STAGES - 1; ++n) ring.load(n, n);
  ItemQueries<D, V, K, HEADS> q = {a.q + (u64)item.seq * a.q_stride + (u64)item.kv_head * HEADS * group * D, group, {}, {}};
  q.keep(lane);
  float o[V / 8][4] = {};
  RowState row[2] = {{-RK_INF, 0.f}, {-RK_INF, 0.f}};
  ValueUnit unit[2] = {};
  u32 slot = 0;
  for (u32 n = 0, tile = warp; tile < tiles; ++n, tile += S::WARPS) {
    rk_copy_wait<(int)S::STAGES - 2>();
    rk_warp_barrier();                                      // every lane's copies of this tile are here, and the last slot is free
    ring.load(n + S::STAGES - 1, slot == 0 ? S::STAGES - 1 : slot - 1);
    const u32 key = base + tile * 16, from = item.first > key ? item.first - key : 0;
    attend<D, V, K, HEADS>(a, item, ring.slots + slot * S::SLOT, key, from, item.end - key, group, lane, q, row, unit, o);
    slot = slot + 1 == S::STAGES ? 0 : slot + 1;
  }
  if (S::E::SCALED) {
#pragma unroll
    for (int i = 0; i < V / 2; ++i) o[i / 4][i % 4] *= unit[i / 2 % 2].of;
  }
  rk_block_barrier();                                       // the rings are free: the merge uses their memory
  if (warp < S::WARPS) publish<D, V, K, HEADS>((float*)shared, warp, lane, row, o);
  rk_block_barrier();
  write_item<D, V, K, HEADS>(a, item, group, (const float*)shared);
}
