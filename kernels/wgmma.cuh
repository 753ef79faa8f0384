// wgmma.cuh - helpers of one instruction each that only compute capability 9.0 has (target sm_90a): products of a warpgroup, barriers
// in shared memory, moving registers between warpgroups. The simulator has none of them.
#pragma once

#define RK_SHARED_1024(type, p) \
  extern __shared__ __align__(1024) unsigned char rk_shared[]; \
  type* p = reinterpret_cast<type*>(rk_shared)

// A barrier in shared memory: a phase ends when it has been arrived at `count` times.
RK_DEV void rk_phase_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
RK_DEV void rk_phase_arrive(u32 barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}
// Arrives when all copies that this thread has started are done.
RK_DEV void rk_phase_arrive_copied(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Waits for the end of the phase of this parity; the one before the first has parity 1, and has ended.
RK_DEV void rk_phase_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra ENDED;\n"
      "bra AGAIN;\n"
      "ENDED:\n"
      "}" ::"r"(barrier), "r"(parity) : "memory");
}

// Barriers of `threads` threads, numbered from 1 on.
RK_DEV void rk_named_barrier(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
RK_DEV void rk_named_arrive(u32 id, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

template <u32 N> RK_DEV void rk_give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <u32 N> RK_DEV void rk_take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// A copy of 16 bytes as rk_copy_async_to, without a condition.
RK_DEV void rk_copy_async_to(u32 shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
RK_DEV void rk_copy_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// What ordinary instructions and copies have written to shared memory, and this thread knows of, is there for products that it starts.
RK_DEV void rk_fence_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A matrix in shared memory as products read it: panels of 64 elements, rows of 128 bytes, chunk c of row r at c ^ r % 8; groups of
// eight rows lie one behind the other. The lower word of its descriptor; that of a matrix that begins `bytes` further is
// bytes / 16 larger. `panel_bytes`: between two panels, where a product reads several.
RK_DEV u32 rk_matrix(u32 shared, u32 panel_bytes) { return shared >> 4 | panel_bytes >> 4 << 16; }
// 128-byte swizzle; 1,024 bytes between groups of eight rows.
RK_DEV u64 rk_descriptor(u32 matrix) { return (u64)(1u << 30 | 1024 >> 4) << 32 | matrix; }

RK_DEV void rk_products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RK_DEV void rk_products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#define RK_SUMS_1(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define RK_SUMS_2(d, n) RK_SUMS_1(d, n), RK_SUMS_1(d, n + 1)
#define RK_SUMS_4(d, n) RK_SUMS_2(d, n), RK_SUMS_2(d, n + 2)
#define RK_SUMS_8(d, n) RK_SUMS_4(d, n), RK_SUMS_4(d, n + 4)
#define RK_SUMS_16(d) RK_SUMS_8(d, 0), RK_SUMS_8(d, 8)
#define RK_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, " \
  "%27, %28, %29, %30, %31"
#define RK_NAMES_64 \
  RK_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
  "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Waits for all groups of products but the last N; `d` are sums of those waited for, which nothing may read before.
template <int N> RK_DEV void rk_products_wait(float (&d)[16][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : RK_SUMS_16(d) : "n"(N) : "memory");
}
// The same, which the compiler takes for something else.
template <int N> RK_DEV void rk_products_wait_again(float (&d)[16][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %64; // again" : RK_SUMS_16(d) : "n"(N) : "memory");
}

// d (+)= a b for 64 rows of `a` and 16 columns, both in shared memory, rows of `b` along the summed dimension.
template <bool BF16> RK_DEV void rk_products(float (&d)[16][4], u32 a, u32 b, bool add) {
#define RK_PRODUCTS(type) \
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %66, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" RK_NAMES_64 "}, %64, %65, add, 1, 1, 0, 0; }" \
               : RK_SUMS_16(d) : "l"(rk_descriptor(a)), "l"(rk_descriptor(b)), "r"((u32)add))
  if (BF16) RK_PRODUCTS("bf16");
  else RK_PRODUCTS("f16");
#undef RK_PRODUCTS
}
// d += a b, `a` in registers as rk_mma has it, `b` in shared memory with rows along the columns of d.
template <bool BF16> RK_DEV void rk_products(float (&d)[16][4], const u32 (&a)[4], u32 b) {
#define RK_PRODUCTS(type) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" RK_NAMES_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;" \
               : RK_SUMS_16(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rk_descriptor(b)))
  if (BF16) RK_PRODUCTS("bf16");
  else RK_PRODUCTS("f16");
#undef RK_PRODUCTS
}
