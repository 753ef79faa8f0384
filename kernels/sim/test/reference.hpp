// reference.hpp - what the kernels should give, in 64-bit floats and the plainest loops, and the random problems they
// are asked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "guard.hpp"
#include "kernels.hpp"

struct Type {
  bool bf16;
  u16 encode(double x) const { return bf16 ? simt::to_bf16((float)x) : simt::to_f16((float)x); }
  double decode(u16 x) const { return bf16 ? simt::from_bf16(x) : simt::from_f16(x); }
  double tolerance() const { return bf16 ? 6e-3 : 1.5e-3; }
  const char* name() const { return bf16 ? "bf16" : "f16"; }
};

// Guarded memory, poisoned where nothing was put.
template <class T> class Memory {
 public:
  explicit Memory(size_t n) : n_(n), p_((T*)guard::allocate(std::max<size_t>(n, 1) * sizeof(T))) {}
  explicit Memory(const std::vector<T>& from) : Memory(from.size()) { std::copy(from.begin(), from.end(), p_); }
  Memory(const Memory&) = delete;
  ~Memory() {
    guard::release(p_);
    guard::forget();
  }
  T* get() const { return p_; }
  T& operator[](size_t i) const { return p_[i]; }
  size_t size() const { return n_; }
  std::vector<T> copy() const { return std::vector<T>(p_, p_ + n_); }

 private:
  size_t n_;
  T* p_;
};

struct Shape {
  Type type;
  u32 dim, kv_heads, group, block_shift;
  bool hnd;
  u32 block() const { return 1u << block_shift; }
  u32 q_heads() const { return kv_heads * group; }
  std::string suffix() const { return std::string("_") + type.name() + "_d" + std::to_string(dim); }
  std::string text() const {
    char s[96];
    snprintf(s, sizeof s, "%s d%u heads %u group %u block %u %s", type.name(), dim, kv_heads, group, block(),
             hnd ? "HND" : "NHD");
    return s;
  }
};

typedef std::mt19937 Random;
inline u32 draw(Random& r, u32 below) { return (u32)(r() % below); }
inline double normal(Random& r) { return std::normal_distribution<double>()(r); }

// Where memory begins as the kernels are told: block 0 of a pool, the first row of queries and outputs, partial row 0 would lie
// so far before it that the offsets of those that are there take 64 bits.
constexpr u32 FIRST_BLOCK = 5000000, FIRST_PART = (1u << 31) + 16;
inline u32 first_token(const Shape& shape) { return (u32)((1ull << 32) / (shape.q_heads() * shape.dim)) + 1; }
template <class T> T* before(T* p, u64 elements) { return (T*)((uintptr_t)p - elements * sizeof(T)); }

// Sequences of the given lengths in blocks of random order. Nothing but their keys and values is written: other slots
// stay NaN, and table entries past a sequence's last block name no block. `shared` blocks at the beginning are the same
// for all.
class Pool {
 public:
  Pool(const Shape& shape, const std::vector<u32>& lengths, Random& r, u32 shared = 0)
      : shape(shape),
        lengths(lengths),
        spare(draw(r, 4)),
        blocks(count(shape, lengths, shared) + spare),
        k(elements()),
        v(elements()),
        starts(),
        table(layout(r, shared)) {
    for (size_t s = 0; s < lengths.size(); ++s)
      for (u32 t = s > 0 ? shared * shape.block() : 0; t < lengths[s]; ++t)
        for (u32 h = 0; h < shape.kv_heads; ++h)
          for (u32 d = 0; d < shape.dim; ++d) {
            k[place(s, t, h) + d] = shape.type.encode(normal(r));
            v[place(s, t, h) + d] = shape.type.encode(normal(r));
          }
  }
  size_t elements() const { return (size_t)blocks * shape.block() * shape.kv_heads * shape.dim; }
  u32 token_stride() const { return shape.hnd ? shape.dim : shape.kv_heads * shape.dim; }
  u32 head_stride() const { return shape.hnd ? shape.block() * shape.dim : shape.dim; }
  u64 block_stride() const { return (u64)shape.block() * shape.kv_heads * shape.dim; }
  size_t place(size_t s, u32 t, u32 h) const {
    return (table[starts[s] + t / shape.block()] - FIRST_BLOCK) * block_stride() +
           (t % shape.block()) * token_stride() + (size_t)h * head_stride();
  }
  RkKv kv() const {
    const u64 gap = FIRST_BLOCK * block_stride();
    return {before(k.get(), gap), before(v.get(), gap), block_stride(),      token_stride(),
            head_stride(),        shape.block_shift,    FIRST_BLOCK + blocks};
  }

  const Shape shape;
  const std::vector<u32> lengths;
  const u32 spare, blocks;
  Memory<u16> k, v;
  std::vector<u32> starts;  // where each sequence begins in the table
  Memory<u32> table;

 private:
  static u32 count(const Shape& shape, const std::vector<u32>& lengths, u32 shared) {
    u32 n = shared;
    for (u32 l : lengths) n += (l + shape.block() - 1) / shape.block() - shared;
    return n;
  }
  std::vector<u32> layout(Random& r, u32 shared) {
    std::vector<u32> order(blocks), entries;
    for (u32 i = 0; i < blocks; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), r);
    u32 next = shared;
    for (u32 l : lengths) {
      starts.push_back((u32)entries.size());
      for (u32 i = 0; i < (l + shape.block() - 1) / shape.block(); ++i)
        entries.push_back(FIRST_BLOCK + (i < shared ? order[i] : order[next++]));
      if (starts.size() < lengths.size())
        for (u32 i = draw(r, 3); i > 0; --i) entries.push_back(0x7fffffff);
    }
    // The last entry is the last of the allocation, whose sizes are multiples of 16 bytes.
    const u32 gap = (u32)(0 - entries.size()) % 4;
    entries.insert(entries.begin(), gap, 0x7fffffff);
    for (u32& start : starts) start += gap;
    return entries;
  }
};

// Attention of one query row over keys [0, limit) of sequence `s`; gives the log-sum in log2 units.
inline double attend(const Pool& pool, size_t s, u32 kv_head, const u16* q, u32 limit, double scale,
                     std::vector<double>& out) {
  const Shape& shape = pool.shape;
  std::vector<double> weight(limit);
  double top = -INFINITY, sum = 0;
  for (u32 t = 0; t < limit; ++t) {
    double x = 0;
    for (u32 d = 0; d < shape.dim; ++d)
      x += shape.type.decode(q[d]) * shape.type.decode(pool.k[pool.place(s, t, kv_head) + d]);
    weight[t] = x * scale;
    top = std::max(top, weight[t]);
  }
  out.assign(shape.dim, 0);
  for (u32 t = 0; t < limit; ++t) {
    const double w = std::exp(weight[t] - top);
    sum += w;
    for (u32 d = 0; d < shape.dim; ++d) out[d] += w * shape.type.decode(pool.v[pool.place(s, t, kv_head) + d]);
  }
  for (double& o : out) o = limit ? o / sum : 0;
  return limit ? (top + std::log(sum)) / std::log(2.0) : -INFINITY;
}

// Collects the error of many rows: the norm of the difference over the norm of the reference, and the worst row's.
struct Error {
  double difference = 0, size = 0, worst_row = 0, lse = 0;
  void add(const std::vector<double>& want, const u16* got, Type type, double want_lse, float got_lse) {
    double d = 0, n = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double g = type.decode(got[i]);
      d += (g - want[i]) * (g - want[i]);
      n += want[i] * want[i];
    }
    if (!(d == d)) d = INFINITY;
    difference += d;
    size += n;
    worst_row = std::max(worst_row, n > 0 ? std::sqrt(d / n) : d > 0 ? INFINITY : 0);
    const double l = want_lse == -INFINITY && got_lse == -INFINITY ? 0 : std::fabs(want_lse - got_lse);
    lse = std::max(lse, l == l ? l : INFINITY);
  }
  double relative() const { return size > 0 ? std::sqrt(difference / size) : difference; }
  // A single row may be off by more than all of them together: three times.
  bool within(double tolerance) const { return relative() <= tolerance && worst_row <= 3 * tolerance && lse <= 3e-3; }
};

// The kernel of the name that is tested: compiled from its source, or as PTX.
const Kernel* kernel_under_test(const std::string& name);

// Launches a kernel by name over the simulator.
template <class Args>
void launch(const std::string& name, u32 x, u32 y, u32 threads, size_t shared, u32 schedule, const Args& args) {
  const Kernel* kernel = kernel_under_test(name);
  if (!kernel || sizeof(Args) != kernel->args_bytes || threads > kernel->threads) {
    fprintf(stderr, "no kernel %s of these arguments\n", name.c_str());
    abort();
  }
  guard::doing(kernel->name.c_str());
  simt::run({kernel->call, &args, {x, y, 1}, threads, shared, schedule});
  guard::doing(nullptr);
}

// Where a check failed, it says so; the program ends with the count.
extern int failures;
void check(bool ok, const char* format, ...) __attribute__((format(printf, 2, 3)));
