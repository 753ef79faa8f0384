// selftest: the results of each helper of plat.cuh on fixed inputs. The simulator's are the expected ones: words before
// RK_SELFTEST_EXACT * 32 are equal bit by bit, the floats after them to a relative 1e-5.
#include "plat.cuh"
#include "element.cuh"

// A 16-bit float of a small whole number, in both formats exact.
template <bool BF16> RK_DEV u16 whole(u32 x) { return (u16)rk_pack<BF16>((float)(int)(x % 17) - 8.f, 0.f); }

template <bool BF16> RK_DEV u32 pair(u32 x) { return whole<BF16>(x) | (u32)whole<BF16>(x * 7 + 3) << 16; }

struct Words {
  u32* out;
  u32 lane, next;
  RK_DEV_METHOD void put(u32 word) { out[next++ * 32 + lane] = word; }
  RK_DEV_METHOD void put_float(float f) { put(*(const u32*)&f); }
};

// A value whose rounding to 16 bits is a tie for some lanes, and a tiny or huge one for others.
RK_DEV float awkward(u32 lane) {
  const float base = 1.f + (float)lane * (1.f / 256.f) + (float)(lane % 3) * (1.f / 2048.f);
  return lane % 8 == 7 ? base * 1e-7f : lane % 8 == 6 ? -base * 60000.f : base;
}

template <bool BF16> RK_DEV void test_mma(Words& w) {
  const u32 l = w.lane;
  const u32 a[4] = {pair<BF16>(l), pair<BF16>(l + 40), pair<BF16>(l * 3), pair<BF16>(l * 5 + 1)};
  float d[4] = {(float)l, 1.f, -2.f, 0.5f};
  rk_mma<BF16>(d, a, pair<BF16>(l * 11 + 2), pair<BF16>(l * 13 + 5));
  for (int i = 0; i < 4; ++i) w.put_float(d[i]);
}

// All numbers of 8 bits as f16, eight a lane; one bit for each NaN, whose fraction is not told.
template <Kind K> RK_DEV void test_conversion(Words& w) {
  u32 nans = 0;
  for (u32 half = 0; half < 2; ++half) {
    u32 pairs[2];
    to_f16_pairs<K>((w.lane * 8 + half * 4) * 0x01010101u + 0x03020100u, pairs[0], pairs[1]);
    for (u32 i = 0; i < 2; ++i) {
      const u32 low = (pairs[i] & 0x7fffu) > 0x7c00u, high = (pairs[i] >> 16 & 0x7fffu) > 0x7c00u;
      nans |= (low | high << 1) << (half * 4 + i * 2);
      w.put(pairs[i] & ~(low * 0xffffu | high * 0xffff0000u));
    }
  }
  w.put(nans);
}

RK_DEV void test_conversions(Words& w) {
  test_conversion<Kind::I8>(w);
  test_conversion<Kind::E4M3>(w);
}

RK_KERNEL(rk_selftest, 32, 1)(const RkSelftestArgs args) {
  RK_STATIC_SHARED(u16, tile, 32 * 8);
  Words w = {args.out, RK_THREAD % 32, 0};
  const u32 lane = w.lane;
  w.put(rk_pack<true>(awkward(lane), -awkward(31 - lane)));
  w.put(rk_pack<false>(awkward(lane), -awkward(31 - lane)));
  w.put(rk_shuffle(lane * 3 + 1, (lane * 5 + 2) % 32));
  w.put_float(rk_shuffle_xor((float)lane, 2));
  w.put(rk_ballot(lane % 3 == 1));
  w.put(rk_lowest_bit(lane * 8 + 8));
  w.put(rk_min(lane, 7));
  w.put_float(rk_max(-(float)lane, -5.f));
  w.put_float(rk_max(-RK_INF, (float)lane));
  test_mma<true>(w);
  test_mma<false>(w);
  // The contents of out are read back by asynchronous copies: two groups, the second with zeros in odd rows.
  const rk_u4* mine = (const rk_u4*)args.out + lane;
  rk_block_barrier();
  const rk_u4 direct = rk_load_once(mine);
  w.put(direct.x + 3 * direct.y + 5 * direct.z + 7 * direct.w);
  rk_copy_async(tile + lane * 8, mine, true);
  rk_copy_commit();
  rk_copy_commit();
  rk_copy_wait<1>();
  rk_warp_barrier();
  w.put(tile[(31 - lane) * 8 + lane % 8]);
  rk_warp_barrier();
  rk_copy_async(tile + lane * 8, mine, lane % 2 == 0);
  rk_copy_commit();
  rk_copy_wait<0>();
  rk_warp_barrier();
  u32 r[4];
  rk_load_matrix(r, tile + lane * 8);
  for (int i = 0; i < 4; ++i) w.put(r[i]);
  rk_load_matrix_transposed(r, tile + lane * 8);
  for (int i = 0; i < 4; ++i) w.put(r[i]);
  w.put_float(rk_exp2(-RK_INF));
  w.put_float(rk_fma((float)lane, 2.f, -1.f));
  w.put(rk_fma2<true>(pair<true>(lane) | 1, 0x7b803f80u, pair<true>(lane * 3 + 1) ^ 0x80008000u));
  w.put(rk_count_bits(lane * 0x01030107u));
  w.put(rk_fma2<false>(pair<false>(lane) | 1, 0x5c003c00u, pair<false>(lane * 3 + 1) ^ 0x80008000u));
  w.put(rk_bytes(lane * 0x01030107u, ~lane * 0x07050301u, lane * 0x1357u & 0x7777u));
  test_conversions(w);
  rk_warp_barrier();
  rk_copy_async_word(tile + lane * 2, args.out + lane, lane % 3 != 0);
  rk_copy_commit();
  rk_copy_wait<0>();
  rk_warp_barrier();
  w.put(*(const u32*)(tile + (31 - lane) * 2));
  while (w.next < RK_SELFTEST_EXACT) w.put(0);
  w.put_float(rk_exp2((float)lane * -0.37f));
  w.put_float(rk_log2((float)lane * 3.1f + 0.5f));
  w.put_float(rk_reciprocal((float)lane * 1.75f - 20.f));
}
