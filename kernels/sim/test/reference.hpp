// reference.hpp - what the kernels should give, in 64-bit floats and the plainest loops, and the random problems they
// are asked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "guard.hpp"
#include "kernels.hpp"

#include "element.cuh"

// By definition; the codes 0x7f and 0xff are NaN.
inline double e4m3(u8 x) {
  const int exponent = x >> 3 & 15, fraction = x & 7;
  const double magnitude = (x & 0x7f) == 0x7f ? NAN : exponent ? std::ldexp(8. + fraction, exponent - 10) : std::ldexp(fraction, -9);
  return x & 0x80 ? -magnitude : magnitude;
}

// Of stored elements, and of queries and outputs beside them.
struct Type {
  Kind kind;
  bool bf16() const { return kind != Kind::F16; }
  bool scaled() const { return kind == Kind::I8 || kind == Kind::E4M3; }
  u32 bytes() const { return scaled() ? 1 : 2; }
  // Of queries and outputs.
  u16 encode(double x) const { return bf16() ? simt::to_bf16((float)x) : simt::to_f16((float)x); }
  double decode(u16 x) const { return bf16() ? simt::from_bf16(x) : simt::from_f16(x); }
  double stored(const u8* p) const { return kind == Kind::I8 ? (double)(signed char)*p : kind == Kind::E4M3 ? e4m3(*p) : decode(*(const u16*)p); }
  double tolerance() const { return bf16() ? 6e-3 : 1.5e-3; }
  const char* name() const { return kind == Kind::I8 ? "i8" : kind == Kind::E4M3 ? "e4m3" : bf16() ? "bf16" : "f16"; }
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
  u32 dim, kv_heads, group, block;
  bool hnd;
  u32 value_dim;
  u32 latent_items = 0;     // latent vectors, for the heads of which a sequence has so many items; 0: keys and values
  bool pairs = false;       // an item has two key-value heads
  u32 q_heads() const { return kv_heads * group; }
  // Items over the same keys, and rows of each.
  u32 items() const { return latent_items ? latent_items : pairs ? kv_heads / 2 : kv_heads; }
  u32 item_rows() const { return q_heads() / items(); }
  std::string suffix() const {
    return std::string("_") + type.name() + "_d" + std::to_string(dim) + (value_dim == dim ? "" : "_" + std::to_string(value_dim));
  }
  std::string merge_suffix() const { return std::string(type.bf16() ? "_bf16_d" : "_f16_d") + std::to_string(value_dim); }
  std::string text() const {
    char s[96];
    snprintf(s, sizeof s, "%s d%u/%u heads %u group %u block %u %s", type.name(), dim, value_dim, kv_heads, group, block,
             latent_items ? "latent" : pairs ? hnd ? "HND, pairs" : "NHD, pairs" : hnd ? "HND" : "NHD");
    return s;
  }
};

// What a model does with scores: by heads, in natural units.
struct Model {
  u32 window = RK_NO_WINDOW;
  float cap = 0;
  std::vector<float> sinks, slopes;
  bool is_plain() const { return window == RK_NO_WINDOW && cap == 0 && sinks.empty() && slopes.empty(); }
};

typedef std::mt19937 Random;
inline u32 draw(Random& r, u32 below) { return (u32)(r() % below); }
inline double normal(Random& r) { return std::normal_distribution<double>()(r); }

// Where memory begins as the kernels are told: block 0 of a pool, the first row of queries and outputs, partial row 0 would lie
// so far before it that the offsets of those that are there take 64 bits.
constexpr u32 FIRST_BLOCK = 5000000, FIRST_PART = (1u << 31) + 16;
inline u32 first_token(const Shape& shape) { return (u32)((1ull << 32) / (shape.q_heads() * std::min(shape.dim, shape.value_dim))) + 1; }
template <class T> T* before(T* p, u64 elements) { return (T*)((uintptr_t)p - elements * sizeof(T)); }

inline Model draw_model(const Shape& shape, Random& r) {
  Model model;
  if (draw(r, 2)) model.window = 1 + draw(r, 120);
  if (draw(r, 2)) model.cap = 5.f + (float)draw(r, 40);
  for (u32 h = 0; h < shape.q_heads() && model.window % 2; ++h) model.sinks.push_back(h % 5 == 4 ? -INFINITY : (float)normal(r) * 3);
  if (draw(r, 2))
    for (u32 h = 0; h < shape.q_heads(); ++h) model.slopes.push_back(std::exp2(-8.f * (float)(h + 1) / (float)shape.q_heads()));
  return model;
}

// Where the table is looked up for each key, places in a plane are counted in units of 16 bytes, of 32 bits.
inline u32 first_block(const Shape& shape) {
  const u64 units = (u64)shape.block * shape.kv_heads * std::max(shape.dim, shape.value_dim) * shape.type.bytes() / 16;
  return (u32)std::min<u64>(FIRST_BLOCK, 3500000000u / units);
}

// Sequences of the given lengths in blocks of random order. Nothing but their keys and values is written: other slots
// stay NaN (where elements have 8 bits, by their scales), and table entries past a sequence's last block name no block. `shared`
// blocks at the beginning are the same for all.
class Pool {
 public:
  // How scales lie: one for each head of each token, or one for each head.
  enum class Scales { TOKENS, HEADS };

  Pool(const Shape& shape, const std::vector<u32>& lengths, Random& r, u32 shared = 0, bool of_tokens = false)
      : shape(shape),
        lengths(lengths),
        spare(draw(r, 4)),
        blocks(count(shape, lengths, shared) + spare),
        scales(of_tokens || draw(r, 3) ? Scales::TOKENS : Scales::HEADS),
        k(elements(shape.dim) * shape.type.bytes()),
        v(shape.latent_items ? 0 : elements(shape.value_dim) * shape.type.bytes()),
        k_scale(scale_count()),
        v_scale(scale_count()),
        starts(),
        table(layout(r, shared)) {
    for (size_t s = 0; s < lengths.size(); ++s)
      for (u32 t = s > 0 ? shared * shape.block : 0; t < lengths[s]; ++t)
        for (u32 h = 0; h < shape.kv_heads; ++h) {
          write(k.get() + place(s, t, h, shape.dim) * shape.type.bytes(), k_scale.get() + scale_place(s, t, h), shape.dim, r);
          if (shape.latent_items) continue;
          write(v.get() + place(s, t, h, shape.value_dim) * shape.type.bytes(), v_scale.get() + scale_place(s, t, h), shape.value_dim, r);
          // Some values are much larger than others.
          if (shape.type.scaled() && scales == Scales::TOKENS && draw(r, 16) == 0) v_scale[scale_place(s, t, h)] *= 1e5f;
        }
  }
  size_t elements(u32 dim) const { return (size_t)blocks * shape.block * shape.kv_heads * dim; }
  u32 token_stride(u32 dim) const { return shape.hnd ? dim : shape.kv_heads * dim; }
  u32 head_stride(u32 dim) const { return shape.hnd ? shape.block * dim : dim; }
  u64 block_stride(u32 dim) const { return (u64)shape.block * shape.kv_heads * dim; }
  size_t place(size_t s, u32 t, u32 h, u32 dim) const {
    return (table[starts[s] + t / shape.block] - first_block(shape)) * block_stride(dim) + (t % shape.block) * token_stride(dim) +
           (size_t)h * head_stride(dim);
  }
  double key(size_t s, u32 t, u32 h, u32 d) const { return element(k, k_scale, place(s, t, h, shape.dim) + d, scale_place(s, t, h)); }
  double value(size_t s, u32 t, u32 h, u32 d) const {
    if (shape.latent_items) return key(s, t, h, d);
    return element(v, v_scale, place(s, t, h, shape.value_dim) + d, scale_place(s, t, h));
  }
  // Makes a token's rows NaN, where elements have 8 bits by its scales or by codes.
  void spoil(size_t s, u32 t) const {
    for (u32 h = 0; h < shape.kv_heads; ++h) {
      memset(k.get() + place(s, t, h, shape.dim) * shape.type.bytes(), 0xff, shape.dim * shape.type.bytes());
      if (shape.latent_items) continue;
      memset(v.get() + place(s, t, h, shape.value_dim) * shape.type.bytes(), 0xff, shape.value_dim * shape.type.bytes());
      if (shape.type.scaled() && scales == Scales::TOKENS) k_scale[scale_place(s, t, h)] = v_scale[scale_place(s, t, h)] = NAN;
    }
  }
  // Of a pool with scales of tokens: makes a token's values so many times as large.
  void enlarge(size_t s, u32 t, float times) const {
    for (u32 h = 0; h < shape.kv_heads; ++h) v_scale[scale_place(s, t, h)] *= times;
  }
  RkKv kv() const {
    const bool tokens = scales == Scales::TOKENS;
    const u64 of_a_block = tokens ? scale_block_stride() : 0;
    return {plane(k, k_scale, shape.dim, of_a_block), plane(v, v_scale, shape.value_dim, of_a_block), of_a_block, tokens ? 1u : 0u,
            tokens ? shape.block : 1u, shape.block, first_block(shape) + blocks};
  }

  const Shape shape;
  const std::vector<u32> lengths;
  const u32 spare, blocks;
  const Scales scales;
  Memory<u8> k, v;
  Memory<float> k_scale, v_scale;
  std::vector<u32> starts;  // where each sequence begins in the table
  Memory<u32> table;

 private:
  // As if the elements of a block lay between.
  u64 scale_block_stride() const { return (u64)shape.block * shape.kv_heads * (1 + shape.dim / 4); }
  size_t scale_count() const {
    if (!shape.type.scaled()) return 0;
    return scales == Scales::TOKENS ? blocks * scale_block_stride() : shape.kv_heads;
  }
  size_t scale_place(size_t s, u32 t, u32 h) const {
    if (!shape.type.scaled()) return 0;
    if (scales == Scales::HEADS) return h;
    const size_t block = table[starts[s] + t / shape.block] - first_block(shape);
    return block * scale_block_stride() + h * shape.block + t % shape.block;
  }
  double element(const Memory<u8>& plane, const Memory<float>& scale, size_t at, size_t scale_at) const {
    const double stored = shape.type.stored(plane.get() + at * shape.type.bytes());
    return shape.type.scaled() ? stored * scale[scale_at] : stored;
  }
  // A row of 8 bits has any bytes but NaN; a scale that brings them to the size of normal numbers, and one in eight far from it.
  void write(u8* to, float* scale, u32 dim, Random& r) {
    for (u32 d = 0; d < dim; ++d) {
      if (!shape.type.scaled()) {
        const u16 x = shape.type.encode(normal(r));
        memcpy(to + d * 2, &x, 2);
      } else if (shape.type.kind == Kind::I8) {
        to[d] = (u8)to_i8((float)normal(r) * 40);
      } else {
        to[d] = (u8)to_e4m3((float)normal(r) * 150);
      }
    }
    if (!shape.type.scaled()) return;
    const float size = scales == Scales::TOKENS && draw(r, 8) == 0 ? 0.03f : 1.f;
    *scale = size * (0.8f + (float)draw(r, 5) * 0.1f) / (shape.type.kind == Kind::I8 ? 40 : 150);
  }
  RkPlane plane(const Memory<u8>& at, const Memory<float>& scale, u32 dim, u64 scales_of_a_block) const {
    const u64 gap = first_block(shape) * block_stride(dim) * shape.type.bytes();
    float* const scale_at = shape.type.scaled() ? before(scale.get(), first_block(shape) * scales_of_a_block) : nullptr;
    return {before(at.get(), gap), block_stride(dim), token_stride(dim), head_stride(dim), scale_at};
  }
  static u32 count(const Shape& shape, const std::vector<u32>& lengths, u32 shared) {
    u32 n = shared;
    for (u32 l : lengths) n += (l + shape.block - 1) / shape.block - shared;
    return n;
  }
  std::vector<u32> layout(Random& r, u32 shared) {
    std::vector<u32> order(blocks), entries;
    for (u32 i = 0; i < blocks; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), r);
    u32 next = shared;
    for (u32 l : lengths) {
      starts.push_back((u32)entries.size());
      for (u32 i = 0; i < (l + shape.block - 1) / shape.block; ++i)
        entries.push_back(first_block(shape) + (i < shared ? order[i] : order[next++]));
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

// A query row: which keys of its sequence it sees, and the position from which slopes count.
struct View {
  u32 limit, position;
  u32 base = 0, tree = 0;   // of the keys from `base` on, those whose bits are set
  bool sees(u32 t, u32 window) const {
    if (tree && t >= base) return t - base < 32 && (tree >> (t - base) & 1);
    return t < limit && position - 1 - t < window;
  }
};

// Attention of one query row of head `head` of sequence `s`; gives the log-sum in log2 units.
inline double attend(const Pool& pool, size_t s, u32 head, const u16* q, const View& view, double scale, const Model& model,
                     std::vector<double>& out) {
  const Shape& shape = pool.shape;
  const u32 kv_head = head / shape.group;
  std::vector<double> weight(pool.lengths[s], -INFINITY);
  const double sink = model.sinks.empty() ? -INFINITY : model.sinks[head];
  double top = sink, sum = 0;
  for (u32 t = 0; t < weight.size(); ++t) {
    if (!view.sees(t, model.window)) continue;
    double x = 0;
    for (u32 d = 0; d < shape.dim; ++d) x += shape.type.decode(q[d]) * pool.key(s, t, kv_head, d);
    x *= scale;
    if (model.cap != 0) x = model.cap * std::tanh(x / model.cap);
    if (!model.slopes.empty()) x -= model.slopes[head] * ((double)view.position - 1 - t);
    weight[t] = x;
    top = std::max(top, x);
  }
  out.assign(shape.value_dim, 0);
  if (top == -INFINITY) return top;
  for (u32 t = 0; t < weight.size(); ++t) {
    if (weight[t] == -INFINITY) continue;
    const double w = std::exp(weight[t] - top);
    sum += w;
    for (u32 d = 0; d < shape.value_dim; ++d) out[d] += w * pool.value(s, t, kv_head, d);
  }
  sum += std::exp(sink - top);
  for (double& o : out) o /= sum;
  return (top + std::log(sum)) / std::log(2.0);
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
    // A row that a sink leaves next to nothing of is compared with the size of a thousandth.
    n = std::max(n, 1e-6 * (double)want.size());
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

// Whether a test that launches these kernels runs.
bool is_wanted(const std::vector<std::string>& kernels);

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
