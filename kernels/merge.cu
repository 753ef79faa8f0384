// merge: joins the partial rows of a context that was cut, and of a shared prefix and its suffixes, by their log-sums in f32.
#include "plat.cuh"
#include "tile.cuh"

// A block of threads takes one output row. Its parts are dealt to groups of D / 4 threads, four columns a thread; the
// groups' sums meet in shared memory.
// D: elements of a value.
template <int D, bool BF16> RK_DEV void merge(const RkMergeArgs& a) {
  constexpr u32 LANES = D / 4, GROUPS = 128 / LANES;
  RK_STATIC_SHARED(rk_f4, parts, 128);
  RK_STATIC_SHARED(rk_f2, states, GROUPS);
  const RkMergeItem item = a.items[RK_BLOCK_X];
  const u32 r = RK_BLOCK_Y, group = RK_THREAD / LANES, lane = RK_THREAD % LANES;
  if (r >= item.rows) return;
  float top = -RK_INF, sum = 0.f;
  rk_f4 o = {0.f, 0.f, 0.f, 0.f};
  constexpr u32 AHEAD = 4;                                  // parts in flight
  // Threads that make no whole group have no part.
  for (u32 i = group; group < GROUPS && i < item.count; i += AHEAD * GROUPS) {
    rk_f2 state[AHEAD];
    rk_f4 part[AHEAD];
#pragma unroll
    for (u32 j = 0; j < AHEAD; ++j) {
      state[j] = rk_f2{-RK_INF, 0.f};
      part[j] = rk_f4{0.f, 0.f, 0.f, 0.f};
      if (i + j * GROUPS < item.count) {
        const u64 row = (u64)a.list[item.first + i + j * GROUPS] + r;
        state[j] = *(const rk_f2*)(a.part_ml + row * 2);
        part[j] = *(const rk_f4*)(a.part_o + row * D + lane * 4);
      }
    }
    float next = top;
#pragma unroll
    for (u32 j = 0; j < AHEAD; ++j) next = rk_max(next, state[j].x);
    const float factor = part_factor(top, next);
    sum *= factor;
    o.x *= factor; o.y *= factor; o.z *= factor; o.w *= factor;
#pragma unroll
    for (u32 j = 0; j < AHEAD; ++j) add_part(o, sum, part[j], state[j].y, part_factor(state[j].x, next));
    top = next;
  }
  parts[RK_THREAD] = o;
  if (lane == 0 && group < GROUPS) states[group] = rk_f2{top, sum};
  rk_block_barrier();
  if (group != 0) return;
  top = -RK_INF;
#pragma unroll
  for (u32 g = 0; g < GROUPS; ++g) top = rk_max(top, states[g].x);
  o = rk_f4{0.f, 0.f, 0.f, 0.f};
  sum = 0.f;
#pragma unroll
  for (u32 g = 0; g < GROUPS; ++g)
    add_part(o, sum, parts[g * LANES + lane], states[g].y, part_factor(states[g].x, top));
  const u64 row = (u64)item.row + r;
  const float factor = add_sink(a.sinks, a.sinks ? (u32)(row % a.q_heads) : 0, top, sum);
  o.x *= factor; o.y *= factor; o.z *= factor; o.w *= factor;
  *(rk_u2*)(a.out + row * D + lane * 4) = quotient<BF16>(o, sum);
  if (lane == 0 && a.lse) a.lse[row] = log_sum(top, sum) * a.lse_scale;
}

#define RK_MERGE(name, V, BF16) \
  RK_KERNEL(rk_merge_##name, 128, 8)(const RkMergeArgs a) { merge<V, BF16>(a); }
RK_MERGES(RK_MERGE)
