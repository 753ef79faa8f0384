// simt.hpp - the helpers of plat.cuh on a CPU, for RK_HOST_SIM. Every thread of a kernel is a fiber; the blocks of a grid run one at a
// time. What this finds beside wrong results: copies used before their wait or barrier (they arrive late, or at random), shared memory read
// before it is written (poisoned with NaN), warps and blocks that diverge at a barrier, and accesses outside an allocation (guard.hpp).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define RK_DEV static inline
#define RK_DEV_METHOD inline
#define RK_KERNEL(name, threads, blocks) \
  constexpr unsigned name##_threads = threads; \
  extern "C" void name
#define RK_SHARED(type, p) type* p = reinterpret_cast<type*>(simt::dynamic_shared())
#define RK_STATIC_SHARED(type, name, n) type* name = reinterpret_cast<type*>(simt::static_shared((n) * sizeof(type)))
#define RK_THREAD (simt::here().thread)
#define RK_THREADS (simt::here().threads)
#define RK_BLOCK_X (simt::here().block_x)
#define RK_BLOCK_Y (simt::here().block_y)
#define RK_BLOCKS_X (simt::here().blocks_x)
#define RK_INF (__builtin_inff())
#define RK_PROMISE(condition) ((condition) ? void() : simt::die("broken promise: " #condition))

struct alignas(16) rk_u4 { u32 x, y, z, w; };
struct alignas(16) rk_f4 { float x, y, z, w; };
struct alignas(8) rk_u2 { u32 x, y; };
struct alignas(8) rk_f2 { float x, y; };

namespace simt {

struct Place { u32 thread, threads, block_x, block_y, block_z, blocks_x; };
const Place& here();

// What lanes of a warp do together. Lanes that meet at different operations end the program.
enum class Op { BARRIER, SHUFFLE, BALLOT, MATRIX, MATRIX_TRANSPOSED, MMA_BF16, MMA_F16 };

struct Shuffle { u32 value, from, result; };
struct Matrix { const void* row; u32 r[4]; };
struct Mma { float* d; const u32* a; u32 b[2]; };

// Waits for the other lanes; the last one carries the operation out for all.
void together(Op op, void* mine);
void block_barrier();
void copy_async(void* shared, const void* global, u32 bytes, bool valid);
void copy_commit();
void copy_wait(int groups);
void* dynamic_shared();
size_t dynamic_shared_bytes();
void* static_shared(size_t bytes);
// Where the calling thread is: its launch, its block's beginning, the last barrier of its block and of its warp. The numbers never come
// again.
struct Epoch { u64 launch, start, block, warp; };
const Epoch& epoch();
[[noreturn]] void die(const char* what);

float from_bf16(u16 x);
float from_f16(u16 x);
u16 to_bf16(float x);
u16 to_f16(float x);

// Runs a kernel. `call` unpacks the arguments. Schedule 0 runs the threads in order, 1 in reverse, any other in an order drawn from it.
typedef std::function<void(const void* args)> Call;
struct Launch { const Call& call; const void* args; u32 grid[3]; u32 threads; size_t shared; u32 schedule; };
void run(const Launch& launch);

}  // namespace simt

template <bool BF16> RK_DEV u32 rk_pack(float lo, float hi) {
  return BF16 ? simt::to_bf16(lo) | (u32)simt::to_bf16(hi) << 16 : simt::to_f16(lo) | (u32)simt::to_f16(hi) << 16;
}
// The sum is rounded twice, which is once where 32 bits hold it.
template <bool BF16> RK_DEV u32 rk_fma2(u32 a, u32 b, u32 c) {
  const auto half = [&](u32 shift) {
    const auto value = [&](u32 x) { return BF16 ? simt::from_bf16((u16)(x >> shift)) : simt::from_f16((u16)(x >> shift)); };
    const float sum = std::fma(value(a), value(b), value(c));
    return (u32)(BF16 ? simt::to_bf16(sum) : simt::to_f16(sum)) << shift;
  };
  return half(0) | half(16);
}
RK_DEV u32 rk_bytes(u32 a, u32 b, u32 which) {
  const u64 all = a | (u64)b << 32;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) result |= (u32)(all >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}
RK_DEV float rk_reciprocal(float x) { return 1.f / x; }
RK_DEV float rk_exp2(float x) { return std::exp2(x); }
RK_DEV float rk_log2(float x) { return std::log2(x); }
RK_DEV float rk_fma(float a, float b, float c) { return a * b + c; }
RK_DEV float rk_max(float a, float b) { return std::fmax(a, b); }
RK_DEV u32 rk_min(u32 a, u32 b) { return a < b ? a : b; }

RK_DEV u32 rk_anew(u32 x) { return x; }

template <class T> RK_DEV T rk_exactly(const T* p) {
  if ((uintptr_t)p % alignof(T)) simt::die("a load is not aligned to its size");
  return *p;
}
RK_DEV rk_u4 rk_load_once(const rk_u4* p) { return rk_exactly(p); }

RK_DEV void rk_copy_async(void* shared, const void* global, bool valid) { simt::copy_async(shared, global, 16, valid); }
RK_DEV void rk_copy_async_word(void* shared, const void* global, bool valid) { simt::copy_async(shared, global, 4, valid); }
RK_DEV void rk_copy_commit() { simt::copy_commit(); }
template <int N> RK_DEV void rk_copy_wait() { simt::copy_wait(N); }

RK_DEV void rk_load_matrix(u32 (&r)[4], const void* row) {
  simt::Matrix m = {row, {}};
  simt::together(simt::Op::MATRIX, &m);
  memcpy(r, m.r, sizeof r);
}
RK_DEV void rk_load_matrix_transposed(u32 (&r)[4], const void* row) {
  simt::Matrix m = {row, {}};
  simt::together(simt::Op::MATRIX_TRANSPOSED, &m);
  memcpy(r, m.r, sizeof r);
}
template <bool BF16> RK_DEV void rk_mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  simt::Mma m = {d, a, {b0, b1}};
  simt::together(BF16 ? simt::Op::MMA_BF16 : simt::Op::MMA_F16, &m);
}

RK_DEV u32 rk_shuffle(u32 v, u32 lane) {
  simt::Shuffle s = {v, lane % 32, 0};
  simt::together(simt::Op::SHUFFLE, &s);
  return s.result;
}
RK_DEV float rk_shuffle_xor(float v, int mask) {
  u32 bits;
  memcpy(&bits, &v, 4);
  bits = rk_shuffle(bits, (RK_THREAD % 32) ^ (u32)mask);
  memcpy(&v, &bits, 4);
  return v;
}
RK_DEV u32 rk_ballot(bool p) {
  simt::Shuffle s = {p, 0, 0};
  simt::together(simt::Op::BALLOT, &s);
  return s.result;
}
RK_DEV void rk_warp_barrier() { simt::together(simt::Op::BARRIER, nullptr); }
RK_DEV void rk_block_barrier() { simt::block_barrier(); }
RK_DEV u32 rk_count_bits(u32 x) { return (u32)__builtin_popcount(x); }
RK_DEV u32 rk_lowest_bit(u32 x) { return (u32)__builtin_ctz(x); }
