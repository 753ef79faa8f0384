// append, copy_blocks, compare_keys, the bandwidth kernels and the self-test.
#include <sys/mman.h>

#include <cstring>

#include "tests.hpp"

namespace {

// Rows of `length` random elements, any distance apart: where there is no row, there is no memory.
class FarRows {
 public:
  FarRows(u32 rows, u32 length, u32 stride, Random& r) : stride_(stride) {
    const size_t bytes = ((size_t)(rows - 1) * stride + length) * 2;
    mapped_ = (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    void* const at = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    base_ = (u8*)at;
    first_ = (u16*)(base_ + mapped_ - PAGE - bytes);
    for (u32 row = 0; row < rows; ++row) {
      const uintptr_t page = (uintptr_t)(*this)[row] / PAGE * PAGE;
      if (mprotect((void*)page, (uintptr_t)((*this)[row] + length) - page, PROT_READ | PROT_WRITE)) abort();
      for (u32 i = 0; i < length; ++i) (*this)[row][i] = (u16)r();
    }
  }
  FarRows(const FarRows&) = delete;
  ~FarRows() { munmap(base_, mapped_); }
  u16* operator[](u32 row) const { return first_ + (size_t)row * stride_; }

 private:
  static constexpr size_t PAGE = 4096;
  const u32 stride_;
  size_t mapped_;
  u8* base_;
  u16* first_;
};

// Slots that take more than 32 bits, and tokens that begin so late that their bytes do.
constexpr u64 FIRST_SLOT = 1ull << 33;
constexpr u32 FIRST_KEY = 3000000000u;

}  // namespace

// Where the row of a head lies in a pool, and its scale.
struct Places {
  const Shape& shape;
  u64 block_stride(u32 dim) const { return (u64)shape.block * shape.kv_heads * dim; }
  u64 row(u64 slot, u32 head, u32 dim) const {
    const u32 token = shape.hnd ? dim : shape.kv_heads * dim, of_head = shape.hnd ? shape.block * dim : dim;
    return slot / shape.block * block_stride(dim) + slot % shape.block * token + (u64)head * of_head;
  }
  u64 scale(u64 slot, u32 head) const { return (slot / shape.block * shape.kv_heads + head) * shape.block + slot % shape.block; }
};

// A row as it is stored: the largest magnitude divided by the largest number is the scale, unless one is given.
static void store_row(const Type& type, const u16* from, u32 dim, bool given, u8* to, float* scale) {
  if (!type.scaled()) return (void)memcpy(to, from, dim * 2);
  float largest = 0;
  for (u32 i = 0; i < dim; ++i) {
    const float x = std::fabs(simt::from_bf16(from[i]));
    largest = largest != largest || x <= largest ? largest : x;
  }
  const bool i8 = type.kind == Kind::I8;
  if (!given) *scale = largest / (i8 ? 127.f : 448.f);
  if (!given && !i8 && *scale == 0) *scale = 1;
  for (u32 i = 0; i < dim; ++i) {
    const double x = simt::from_bf16(from[i]) / *scale;
    if (i8) {
      to[i] = x != x ? 0 : (u8)(int)std::nearbyint(std::max(-127., std::min(127., x)));
      continue;
    }
    // The nearest of all codes; of two as near the even one.
    int best = 0;
    for (int code = 0; code < 0x7f; ++code) {
      const double off = std::fabs(std::fabs(x) - e4m3((u8)code)), least = std::fabs(std::fabs(x) - e4m3((u8)best));
      if (off < least || (off == least && code % 2 == 0)) best = code;
    }
    if (std::isinf(x)) best = 0x7e;
    to[i] = (u8)((x != x ? 0x7f : best) | (std::signbit(x) ? 0x80 : 0));
  }
}

static std::string appender(const Shape& shape) {
  return shape.type.scaled() ? std::string("rk_append_") + shape.type.name() : "rk_append";
}

void test_append(const Shape& shape, u32 tokens, bool far, u32 seed) {
  if (!is_wanted({appender(shape)})) return;
  Random r(seed);
  const Places places{shape};
  const u32 heads = shape.kv_heads, blocks = (tokens + shape.block - 1) / shape.block + 2, bytes = shape.type.bytes();
  const auto stride = [&](u32 dim) { return (far ? 1u << 31 : heads * dim) + 8 * draw(r, 3); };
  const u32 k_stride = stride(shape.dim), v_stride = stride(shape.value_dim);
  const FarRows k(tokens, heads * shape.dim, k_stride, r), v(tokens, heads * shape.value_dim, v_stride, r);
  if (shape.type.scaled())
    for (u32 t = 0; t < tokens; ++t)                        // numbers, some rows of zeros, and now and then one that is none
      for (u32 i = 0; i < heads * (shape.dim + shape.value_dim); ++i) {
        u16& x = i < heads * shape.dim ? k[t][i] : v[t][i - heads * shape.dim];
        const u32 kind = draw(r, 600);
        x = simt::to_bf16(t % 7 == 3 ? 0.f : kind == 0 ? NAN : kind == 1 ? INFINITY : (float)normal(r) * std::exp2((float)(t % 40) - 20.f));
      }
  std::vector<u32> order(blocks * shape.block);
  for (u32 i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), r);
  // A block id has 32 bits, and no plane begins before address 0.
  const u64 most = 100000000000000u / (places.block_stride(std::max(shape.dim, shape.value_dim)) * bytes);
  const u64 first = std::min<u64>({(FIRST_SLOT + shape.block - 1) / shape.block, 3u << 30, most}), first_slot = first * shape.block;
  Memory<u64> slot(tokens);
  for (u32 t = 0; t < tokens; ++t) slot[t] = draw(r, 5) == 0 ? RK_SKIP : first_slot + order[t];
  const bool given = shape.type.scaled() && draw(r, 2);
  const u64 of_a_block = shape.type.scaled() && !given ? (u64)shape.block * heads : 0;
  const size_t scales = !shape.type.scaled() ? 0 : given ? heads : blocks * of_a_block;
  Memory<u8> pool_k(blocks * places.block_stride(shape.dim) * bytes), pool_v(blocks * places.block_stride(shape.value_dim) * bytes);
  Memory<float> k_scale(scales), v_scale(scales);
  for (u32 i = 0; given && i < heads; ++i) {
    k_scale[i] = 0.01f * (float)(1 + draw(r, 3));
    v_scale[i] = 0.5f * (float)(1 + draw(r, 3));
  }
  std::vector<u8> want_k = pool_k.copy(), want_v = pool_v.copy();
  std::vector<float> want_ks = k_scale.copy(), want_vs = v_scale.copy();
  for (u32 t = 0; t < tokens; ++t) {
    if (slot[t] == RK_SKIP) continue;
    for (u32 h = 0; h < heads; ++h) {
      const u64 at = slot[t] - first_slot, scale_at = given ? h : places.scale(at, h);
      const bool scaled = shape.type.scaled();
      store_row(shape.type, k[t] + h * shape.dim, shape.dim, given, &want_k[places.row(at, h, shape.dim) * bytes], scaled ? &want_ks[scale_at] : nullptr);
      if (shape.value_dim == 0) continue;                   // latent vectors
      store_row(shape.type, v[t] + h * shape.value_dim, shape.value_dim, given, &want_v[places.row(at, h, shape.value_dim) * bytes],
                scaled ? &want_vs[scale_at] : nullptr);
    }
  }
  const auto plane = [&](const Memory<u8>& pool, const Memory<float>& scale, u32 dim) {
    return RkPlane{before(pool.get(), first * places.block_stride(dim) * bytes), places.block_stride(dim),
                   shape.hnd ? dim : heads * dim, shape.hnd ? shape.block * dim : dim,
                   shape.type.scaled() ? before(scale.get(), first * of_a_block) : nullptr};
  };
  const RkKv kv = {plane(pool_k, k_scale, shape.dim), plane(pool_v, v_scale, shape.value_dim), of_a_block, given ? 0u : 1u,
                   given ? 1u : shape.block, shape.block, (u32)first + blocks};
  launch(appender(shape), 1 + draw(r, 5), 1, 256, 0, seed,
         RkAppendArgs{kv, k[0], v[0], slot.get(), k_stride, v_stride, tokens, heads, shape.dim, shape.value_dim, given, 0});
  // Scales that are NaN have any bits of one.
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i] && (a[i] == a[i] || b[i] == b[i])) return false;
    return true;
  };
  check(pool_k.copy() == want_k && pool_v.copy() == want_v && same(k_scale.copy(), want_ks) && same(v_scale.copy(), want_vs),
        "append of %u tokens, %s, %s scales, schedule %u", tokens, shape.text().c_str(), given ? "given" : "computed", seed);
}

// Every byte, in every place of a word, against the table of what it is.
void test_widening(u32 seed) {
  bool right = true;
  for (u32 byte = 0; byte < 256; ++byte)
    for (u32 place = 0; place < 4; ++place) {
      const u32 word = (0x3a3a3a3au * seed & ~(255u << place * 8)) | byte << place * 8;
      for (const Kind kind : {Kind::I8, Kind::E4M3}) {
        u32 pair[2];
        kind == Kind::I8 ? widen<Kind::I8>(word, pair[0], pair[1]) : widen<Kind::E4M3>(word, pair[0], pair[1]);
        const float got = simt::from_bf16((u16)(pair[place % 2] >> place / 2 * 16));
        const double want = kind == Kind::I8 ? (double)(signed char)byte : e4m3((u8)byte);
        right = right && (got == want || (got != got && want != want));
        if (kind == Kind::E4M3) right = right && to_e4m3(got) == byte;
        if (kind == Kind::I8 && byte != 0x80) right = right && to_i8(got) == byte;
      }
    }
  check(right, "bytes made wide, seed %u", seed);
}

// Whole and part blocks of every plane, from blocks of the lower half to blocks of the upper one.
void test_copy(u32 rows, u32 row_units, u32 planes, u32 seed) {
  if (!is_wanted({"rk_copy_blocks"})) return;
  Random r(seed);
  const u32 blocks = 6, words = rows * row_units * 4;
  Memory<u32> from((size_t)planes * blocks * words), to((size_t)planes * blocks * words);
  for (size_t i = 0; i < from.size(); ++i) from[i] = (u32)r();
  // Source planes lie apart; a destination block holds all its planes, as a host block does.
  Memory<u64> from_planes(planes), to_planes(planes);
  for (u32 p = 0; p < planes; ++p) {
    from_planes[p] = (u64)before(from.get() + (size_t)p * blocks * words, (u64)FIRST_BLOCK * words);
    to_planes[p] = (u64)before(to.get() + (size_t)p * words, (u64)FIRST_BLOCK * words * planes);
  }
  std::vector<RkCopyPair> pairs;
  std::vector<u32> target(blocks);
  for (u32 i = 0; i < blocks; ++i) target[i] = i;
  std::shuffle(target.begin(), target.end(), r);
  for (u32 i = 0; i < 4; ++i) pairs.push_back({draw(r, blocks), target[i], i % 2 ? row_units : draw(r, row_units + 1)});
  std::vector<u32> want = to.copy();
  for (const RkCopyPair& pair : pairs)
    for (u32 p = 0; p < planes; ++p)
      for (u32 row = 0; row < rows; ++row)
        memcpy(&want[((size_t)pair.dst * planes + p) * words + row * row_units * 4],
               from.get() + ((size_t)p * blocks + pair.src) * words + row * row_units * 4, pair.units * 16);
  for (RkCopyPair& pair : pairs) pair = {FIRST_BLOCK + pair.src, FIRST_BLOCK + pair.dst, pair.units};
  Memory<RkCopyPair> given(pairs);
  launch("rk_copy_blocks", 1 + draw(r, 9), 1, 256, 0, seed,
         RkCopyArgs{from_planes.get(), to_planes.get(), (u64)words * 4, (u64)words * 4 * planes, given.get(),
                    (u32)pairs.size(), planes, rows, row_units});
  check(to.copy() == want, "copy of blocks of %u x %u units, %u planes, schedule %u", rows, row_units, planes, seed);
}

void test_compare(u32 runs, u32 longest, u32 seed) {
  if (!is_wanted({"rk_compare_keys"})) return;
  Random r(seed);
  std::vector<u32> base(longest + 1), a, b;
  for (u32& t : base) t = (u32)r();
  std::vector<RkRun> a_runs, b_runs;
  // Runs share a random part of `base`; some begin at a multiple of 4, some not.
  const auto add = [&](std::vector<u32>& keys, std::vector<RkRun>& of) {
    while (draw(r, 3) && keys.size() % 4) keys.push_back(7);
    // Whole steps of 128 keys, one more, one less: and any other length.
    const u32 steps = 1 + draw(r, longest / 128 + 1), any = draw(r, longest + 1);
    const u32 n = draw(r, 2) ? any : std::min(longest, steps * 128 - 1 + draw(r, 3)), same = draw(r, 2) ? n : draw(r, n + 1);
    of.push_back({(u32)keys.size(), n});
    keys.insert(keys.end(), base.begin(), base.begin() + same);
    for (u32 i = same; i < n; ++i) keys.push_back(draw(r, 2) ? base[i] : (u32)r());
  };
  for (u32 i = 0; i < runs; ++i) {
    add(a, a_runs);
    add(b, b_runs);
  }
  std::vector<RkComparePair> pairs;
  std::vector<u32> want;
  for (u32 i = 0; i < runs; ++i)
    for (u32 j = 0; j < runs; ++j) {
      pairs.push_back({i, j});
      u32 n = 0;
      while (n < std::min(a_runs[i].len, b_runs[j].len) && a[a_runs[i].first + n] == b[b_runs[j].first + n]) ++n;
      want.push_back(n);
    }
  for (RkRun& run : a_runs) run.first += FIRST_KEY;
  for (RkRun& run : b_runs) run.first += FIRST_KEY;
  Memory<u32> a_keys(a), b_keys(b), out(pairs.size());
  Memory<RkRun> x(a_runs), y(b_runs);
  Memory<RkComparePair> given(pairs);
  launch("rk_compare_keys", 1 + draw(r, 4), 1, 256, 0, seed,
         RkCompareArgs{before(a_keys.get(), FIRST_KEY), x.get(), before(b_keys.get(), FIRST_KEY), y.get(), given.get(), out.get(), (u32)pairs.size(), 0});
  check(out.copy() == want, "comparing %u x %u runs of at most %u keys, schedule %u", runs, runs, longest, seed);
}

void test_bandwidth(u32 units, u32 seed) {
  if (!is_wanted({"rk_copy", "rk_read"})) return;
  Random r(seed);
  Memory<u32> from((size_t)units * 4), to((size_t)units * 4);
  for (size_t i = 0; i < from.size(); ++i) from[i] = (u32)r();
  launch("rk_copy", 1 + draw(r, 3), 1, 512, 0, seed, RkBandwidthArgs{from.get(), to.get(), units});
  check(from.copy() == to.copy(), "bandwidth copy of %u units, schedule %u", units, seed);
  // The sum of a unit is the one that the kernel compares with.
  for (size_t i = 0; i < from.size(); ++i) from[i] = i % 4 == 1 ? 0x12345678u : 0;
  const std::vector<u32> before = from.copy();
  launch("rk_read", 1 + draw(r, 3), 1, 512, 0, seed, RkBandwidthArgs{from.get(), nullptr, units});
  check(from.copy() == before, "bandwidth read of %u units, schedule %u", units, seed);
}

// The helpers against arithmetic done here, where that is easy; the rest is held by the attention tests, which use
// every helper. What all schedules agree on is what a GPU must give: bench/selftest.expected, which `write_to` names
// when it is to be made anew.
void test_selftest(u32 seed, const char* write_to) {
  if (!is_wanted({"rk_selftest"})) return;
  static std::vector<u32> first;
  Memory<u32> out(RK_SELFTEST_WORDS);
  launch("rk_selftest", 1, 1, 32, 0, seed, RkSelftestArgs{out.get()});
  const std::vector<u32> got = out.copy();
  if (first.empty()) first = got;
  check(got == first, "self-test differs between schedules, schedule %u", seed);
  bool right = true;
  for (u32 lane = 0; lane < 32; ++lane) {
    right = right && got[2 * 32 + lane] == (lane * 5 + 2) % 32 * 3 + 1;
    right = right && got[4 * 32 + lane] == 0x92492492u;  // lanes 1, 4, 7, ... of every three
    right = right && got[5 * 32 + lane] == (u32)__builtin_ctz(lane * 8 + 8);
  }
  // All numbers of 8 bits: four pairs of f16 a lane from word 33 on of integers, from 38 on of e4m3, each followed by the NaNs.
  for (u32 byte = 0; byte < 256; ++byte) {
    const u32 lane = byte / 8, at = byte % 8;
    const auto number = [&](u32 first) { return simt::from_f16((u16)(got[(first + at / 2) * 32 + lane] >> at % 2 * 16)); };
    const u32 exponent = byte >> 3 & 15, fraction = byte & 7;
    const double magnitude = exponent ? ldexp(8 + fraction, (int)exponent - 10) : ldexp(fraction, -9);
    const bool nan = (byte & 0x7f) == 0x7f;
    right = right && number(33) == (float)(signed char)byte && (got[37 * 32 + lane] >> at & 1) == 0;
    right = right && number(38) == (nan ? 0. : byte & 0x80 ? -magnitude : magnitude) && (got[42 * 32 + lane] >> at & 1) == nan;
  }
  check(right, "self-test, schedule %u", seed);
  FILE* f = fopen(write_to ? write_to : "../bench/selftest.expected", write_to ? "wb" : "rb");
  if (!f) return check(false, "kernels/bench/selftest.expected cannot be opened");
  std::vector<u32> kept(got);
  if (write_to) fwrite(got.data(), 4, got.size(), f);
  else
    check(fread(kept.data(), 4, kept.size(), f) == got.size() && kept == got,
          "the self-test gives something else than it did: test.sh selftest FILE");
  fclose(f);
}
