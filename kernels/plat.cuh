// plat.cuh - the platform of the kernels: about twenty helpers, without CUDA's headers. On a GPU each is one instruction; with
// RK_HOST_SIM the simulator's header defines the same names for a CPU. `rk_selftest` compares the two.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#ifdef RK_HOST_SIM
#include "simt.hpp"
#else

#define RK_DEV static __device__ __forceinline__
#define RK_DEV_METHOD __device__ __forceinline__
#define RK_KERNEL(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name
#define RK_SHARED(type, p) \
  extern __shared__ __align__(128) unsigned char rk_shared[]; \
  type* p = reinterpret_cast<type*>(rk_shared)
#define RK_STATIC_SHARED(type, name, n) __shared__ __align__(16) type name[n]
#define RK_THREAD (threadIdx.x)
#define RK_THREADS (blockDim.x)
#define RK_BLOCK_X (blockIdx.x)
#define RK_BLOCK_Y (blockIdx.y)
#define RK_BLOCKS_X (gridDim.x)
#define RK_INF (__int_as_float(0x7f800000))
// What the host has promised; the simulator aborts if it does not hold.
#define RK_PROMISE(condition)

struct __align__(16) rk_u4 { u32 x, y, z, w; };
struct __align__(16) rk_f4 { float x, y, z, w; };
struct __align__(8) rk_u2 { u32 x, y; };
struct __align__(8) rk_f2 { float x, y; };

// Two rounded 16-bit floats in a word, `lo` in bits 0 to 15.
template <bool BF16> RK_DEV u32 rk_pack(float lo, float hi) {
  u32 r;
  if (BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
// a * b + c in both halves, rounded once.
template <bool BF16> RK_DEV u32 rk_fma2(u32 a, u32 b, u32 c) {
  u32 r;
  if (BF16) asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  else asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
// Four of the bytes of a (0 to 3) and b (4 to 7); the lowest nibble of `which` names the lowest one.
RK_DEV u32 rk_bytes(u32 a, u32 b, u32 which) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(which));
  return r;
}
// The lower two bytes, which are e4m3, as a pair of f16: where a device has an instruction for it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define RK_CONVERTS_E4M3
RK_DEV u32 rk_e4m3_pair(u32 w) {
  u32 r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((u16)w));
  return r;
}
#endif
// 1 / x to the last place or the one beside it; 1 / inf is 0.
RK_DEV float rk_reciprocal(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
// 2^x; 2^-inf is 0.
RK_DEV float rk_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
RK_DEV float rk_log2(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
RK_DEV float rk_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
RK_DEV float rk_max(float a, float b) { return fmaxf(a, b); }
RK_DEV u32 rk_min(u32 a, u32 b) { return a < b ? a : b; }

// x, as a value that the compiler knows nothing about: what is computed from it is computed again, and not kept in registers.
RK_DEV u32 rk_anew(u32 x) { asm volatile("" : "+r"(x)); return x; }

// 16 bytes of memory that is read once: kept out of the first-level cache.
RK_DEV rk_u4 rk_load_once(const rk_u4* p) {
  rk_u4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

RK_DEV u32 rk_shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// Starts a copy of 16 bytes into shared memory; zeros where `valid` is false, and then nothing is read.
RK_DEV void rk_copy_async_to(u32 shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0) : "memory");
}
RK_DEV void rk_copy_async(void* shared, const void* global, bool valid) { rk_copy_async_to(rk_shared_address(shared), global, valid); }
// The same with 4 bytes.
RK_DEV void rk_copy_async_word(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               ::"r"(rk_shared_address(shared)), "l"(global), "r"(valid ? 4 : 0) : "memory");
}
// Ends a group of this thread's copies; rk_copy_wait<N> waits for all groups but the last N. Copies of other threads need a barrier too.
RK_DEV void rk_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> RK_DEV void rk_copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
RK_DEV void rk_load_matrix(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(rk_shared_address(row)) : "memory");
}
RK_DEV void rk_load_matrix_transposed(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(rk_shared_address(row)) : "memory");
}
// d += a b for a 16 x 16, b 16 x 8, d 16 x 8, spread over the warp as mma.m16n8k16 wants it.
template <bool BF16> RK_DEV void rk_mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if (BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Whole warps only: every lane calls.
RK_DEV float rk_shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
RK_DEV u32 rk_shuffle(u32 v, u32 lane) { return __shfl_sync(0xffffffffu, v, (int)lane); }
RK_DEV u32 rk_ballot(bool p) { return __ballot_sync(0xffffffffu, p); }
RK_DEV void rk_warp_barrier() { __syncwarp(); }
RK_DEV void rk_block_barrier() { __syncthreads(); }
RK_DEV u32 rk_count_bits(u32 x) { return (u32)__popc((int)x); }
// Index of the lowest set bit; x is not 0.
RK_DEV u32 rk_lowest_bit(u32 x) { return (u32)__ffs((int)x) - 1; }

#endif

#include "abi.cuh"
