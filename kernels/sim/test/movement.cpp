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

void test_append(const Shape& shape, u32 tokens, bool far, u32 seed) {
  Random r(seed);
  const u32 units = shape.kv_heads * shape.dim, blocks = (tokens + shape.block() - 1) / shape.block() + 2;
  const u32 apart = far ? 1u << 31 : units, k_stride = apart + 8 * draw(r, 3), v_stride = apart + 8 * draw(r, 3);
  const FarRows k(tokens, units, k_stride, r), v(tokens, units, v_stride, r);
  std::vector<u32> places(blocks * shape.block());
  for (u32 i = 0; i < places.size(); ++i) places[i] = i;
  std::shuffle(places.begin(), places.end(), r);
  Memory<u64> slot(tokens);
  for (u32 t = 0; t < tokens; ++t) slot[t] = draw(r, 5) == 0 ? RK_SKIP : FIRST_SLOT + places[t];
  const u64 block_stride = (u64)units * shape.block();
  Memory<u16> pool_k(blocks * block_stride), pool_v(blocks * block_stride);
  std::vector<u16> want_k = pool_k.copy(), want_v = pool_v.copy();
  const u32 token_stride = shape.hnd ? shape.dim : units,
            head_stride = shape.hnd ? shape.block() * shape.dim : shape.dim;
  for (u32 t = 0; t < tokens; ++t) {
    if (slot[t] == RK_SKIP) continue;
    for (u32 i = 0; i < units; ++i) {
      const u64 to = (slot[t] - FIRST_SLOT) / shape.block() * block_stride + slot[t] % shape.block() * token_stride +
                     i / shape.dim * head_stride + i % shape.dim;
      want_k[to] = k[t][i];
      want_v[to] = v[t][i];
    }
  }
  const u64 first = FIRST_SLOT / shape.block(), gap = first * block_stride;
  const RkKv kv = {before(pool_k.get(), gap), before(pool_v.get(), gap), block_stride, token_stride, head_stride,
                   shape.block_shift,         (u32)first + blocks};
  launch("rk_append", 1 + draw(r, 5), 1, 256, 0, seed,
         RkAppendArgs{kv, k[0], v[0], slot.get(), k_stride, v_stride, tokens, shape.kv_heads, shape.dim, 0});
  check(pool_k.copy() == want_k && pool_v.copy() == want_v, "append of %u tokens, %s, schedule %u", tokens,
        shape.text().c_str(), seed);
}

// Whole and part blocks of every plane, from blocks of the lower half to blocks of the upper one.
void test_copy(u32 rows, u32 row_units, u32 planes, u32 seed) {
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
