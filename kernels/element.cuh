// element.cuh - the types of stored keys and values, and how elements of 8 bits become bf16.
#pragma once

// Of stored elements. Queries and outputs are f16 beside F16, and bf16 beside all others.
enum class Kind { BF16, F16, I8, E4M3 };

template <Kind K> struct Element {
  static constexpr bool BF16 = K != Kind::F16;              // of queries and outputs
  static constexpr u32 BYTES = K == Kind::BF16 || K == Kind::F16 ? 2 : 1;
  static constexpr bool SCALED = BYTES == 1;
  static constexpr bool ITEM_BF16 = K == Kind::BF16;        // of the products of decode
};

// The bytes 0 and 2 of a word, and 1 and 3, as pairs of bf16: every number of 8 bits is one of bf16. Scales are not applied.
template <Kind K> RK_DEV u32 widened_pair(u32 w) {
  if (K == Kind::I8)                                        // 128 + the lower seven bits, less 128, or 256 where the byte is negative
    return rk_fma2<true>(0x43004300u | (w & 0x007f007fu), 0x3f803f80u, 0xc300c300u | (w & 0x00800080u));
  // Exponent and fraction at their places, times 2^120, the difference of the biases; exact for subnormal numbers too.
  const u32 magnitude = (w & 0x007f007fu) << 4;
  return rk_fma2<true>((w << 8 & 0x80008000u) | magnitude, 0x7b807b80u, 0x80008000u);
}

// For a pair that has the code of NaN: makes 480, which that was read as, a NaN.
RK_DEV u32 with_nan(u32 w, u32 pair) {
  const u32 nan = (((w & 0x007f007fu) << 4) + 0x00100010u) & 0x08000800u;
  return pair | ((nan << 4) - (nan >> 4));
}

template <Kind K> RK_DEV void widen(u32 w, u32& even, u32& odd) {
  even = widened_pair<K>(w);
  odd = widened_pair<K>(w >> 8);
  if (K == Kind::E4M3 && (((w & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0) {
    even = with_nan(w, even);
    odd = with_nan(w >> 8, odd);
  }
}

// Two e4m3 in the upper bytes of the halves: exponent and fraction at the places that f16 has for them, times 2^8, the difference of
// the biases.
RK_DEV u32 e4m3_pair_by_bits(u32 w) {
  return rk_fma2<false>((w & 0x80008000u) | (w & 0x7f007f00u) >> 1, 0x5c005c00u, 0x80008000u);
}
// For a pair that has the code of NaN: makes 480 a NaN.
RK_DEV u32 with_f16_nan(u32 w, u32 pair) {
  const u32 nan = ((w & 0x7f007f00u) + 0x01000100u) & 0x80008000u;
  return pair | ((nan >> 1) - (nan >> 5));
}

// Bytes 0 and 1 of a word as a pair of f16, and bytes 2 and 3: what decode multiplies with, as it takes half of the instructions.
template <Kind K> RK_DEV void to_f16_pairs(u32 w, u32& first, u32& second) {
  if (K == Kind::I8) {                                      // 1,024 + 128 + the integer, less 1,152
    const u32 above = w ^ 0x80808080u;
    first = rk_fma2<false>(rk_bytes(above, 0x64646464u, 0x4140), 0x3c003c00u, 0xe480e480u);
    second = rk_fma2<false>(rk_bytes(above, 0x64646464u, 0x4342), 0x3c003c00u, 0xe480e480u);
    return;
  }
#ifdef RK_CONVERTS_E4M3
  first = rk_e4m3_pair(w);
  second = rk_e4m3_pair(w >> 16);
#else
  first = e4m3_pair_by_bits(rk_bytes(w, 0, 0x1404));
  second = e4m3_pair_by_bits(rk_bytes(w, 0, 0x3424));
  if ((((w & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0) {
    first = with_f16_nan(rk_bytes(w, 0, 0x1404), first);
    second = with_f16_nan(rk_bytes(w, 0, 0x3424), second);
  }
#endif
}

RK_DEV float as_float(u32 bits) { return *(const float*)&bits; }
RK_DEV u32 as_bits(float x) { return *(const u32*)&x; }
RK_DEV float low_bf16(u32 pair) { return as_float(pair << 16); }
RK_DEV float high_bf16(u32 pair) { return as_float(pair & 0xffff0000u); }

// To the nearest integer from -127 to 127, ties to even; a NaN is 0.
RK_DEV u32 to_i8(float x) {
  const float bounded = x != x ? 0.f : x > 127.f ? 127.f : x < -127.f ? -127.f : x;
  return as_bits(bounded + 12582912.f) & 0xff;              // 1.5 * 2^23: the sum is rounded to an integer, in its lowest bits
}

// To the nearest number, ties to even; what is too large becomes the largest one, a NaN stays one.
RK_DEV u32 to_e4m3(float x) {
  const u32 bits = as_bits(x) & 0x7fffffffu, sign = as_bits(x) >> 24 & 0x80;
  if (bits > 0x7f800000u) return sign | 0x7f;
  if (bits >= 0x43e00000u) return sign | 0x7e;              // 448
  // Below 2^-6 numbers are multiples of 2^-9, which is the last place of 2^14.
  if (bits < 0x3c800000u) return sign | (as_bits(as_float(bits) + 16384.f) & 0xff);
  return sign | (((bits + 0x7ffffu + (bits >> 20 & 1)) >> 20) - (120u << 3));
}

template <Kind K> RK_DEV u32 narrow(float x) { return K == Kind::I8 ? to_i8(x) : to_e4m3(x); }
// The largest number.
template <Kind K> RK_DEV float most() { return K == Kind::I8 ? 127.f : 448.f; }

// The attention kernels are compiled for these: a name, elements of a head of keys, of a head of values, the stored type.
#define RK_VARIANTS(each) \
  each(bf16_d64, 64, 64, Kind::BF16) \
  each(bf16_d128, 128, 128, Kind::BF16) \
  each(f16_d64, 64, 64, Kind::F16) \
  each(f16_d128, 128, 128, Kind::F16) \
  each(bf16_d96, 96, 96, Kind::BF16) \
  each(bf16_d192, 192, 192, Kind::BF16) \
  each(bf16_d192_128, 192, 128, Kind::BF16) \
  each(bf16_d256, 256, 256, Kind::BF16) \
  each(f16_d96, 96, 96, Kind::F16) \
  each(f16_d192, 192, 192, Kind::F16) \
  each(f16_d192_128, 192, 128, Kind::F16) \
  each(f16_d256, 256, 256, Kind::F16) \
  each(i8_d64, 64, 64, Kind::I8) \
  each(i8_d128, 128, 128, Kind::I8) \
  each(e4m3_d64, 64, 64, Kind::E4M3) \
  each(e4m3_d128, 128, 128, Kind::E4M3)

// Decode in pairs of key-value heads, of up to 8 query heads each, is compiled for these.
#define RK_PAIRS(each) \
  each(i8_d128, 128, 128, Kind::I8) \
  each(e4m3_d128, 128, 128, Kind::E4M3)

// Attention over latent vectors is compiled for these: a name, blocks of 16 query heads of an item,
// the type of elements.
#define RK_LATENTS(each) \
  each(bf16_h16, 1, true) \
  each(bf16_h32, 2, true) \
  each(f16_h16, 1, false) \
  each(f16_h32, 2, false)

// Merging is compiled for these: a name, elements of a head of values, the type of outputs.
#define RK_MERGES(each) \
  each(bf16_d64, 64, true) \
  each(bf16_d128, 128, true) \
  each(bf16_d96, 96, true) \
  each(bf16_d192, 192, true) \
  each(bf16_d256, 256, true) \
  each(bf16_d512, 512, true) \
  each(f16_d64, 64, false) \
  each(f16_d128, 128, false) \
  each(f16_d96, 96, false) \
  each(f16_d192, 192, false) \
  each(f16_d256, 256, false) \
  each(f16_d512, 512, false)
