// copy_blocks: copies of blocks, whole or in part, between pools. A pool may be host memory mapped into the device.
// No block is both a source and a destination of one launch.
#include "plat.cuh"

constexpr u32 SEGMENT = 2048;   // units in a piece of work of a thread block

// Work is (pair, plane, row, segment), walked by the grid; eight loads in flight per thread.
RK_KERNEL(rk_copy_blocks, 256, 4)(const RkCopyArgs a) {
  const u32 segments = (a.row_units + SEGMENT - 1) / SEGMENT;
  const u64 pieces = (u64)a.pairs_len * a.planes * a.rows * segments;
  for (u64 piece = RK_BLOCK_X; piece < pieces; piece += RK_BLOCKS_X) {
    u64 rest = piece;
    const u32 first = (u32)(rest % segments) * SEGMENT;
    rest /= segments;
    const u32 row = (u32)(rest % a.rows);
    rest /= a.rows;
    const u32 plane = (u32)(rest % a.planes);
    const RkCopyPair pair = a.pairs[rest / a.planes];
    RK_PROMISE(pair.units <= a.row_units);
    const u64 from = (u64)row * a.row_units;
    const rk_u4* src = (const rk_u4*)(a.src_planes[plane] + pair.src * a.src_stride) + from;
    rk_u4* dst = (rk_u4*)(a.dst_planes[plane] + pair.dst * a.dst_stride) + from;
    const u32 last = rk_min(pair.units, first + SEGMENT);
    u32 i = first + RK_THREAD;
    for (; i + 7 * 256 < last; i += 8 * 256) {
      rk_u4 v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = rk_load_once(src + i + j * 256);
#pragma unroll
      for (int j = 0; j < 8; ++j) dst[i + j * 256] = v[j];
    }
    for (; i < last; i += 256) dst[i] = rk_load_once(src + i);
  }
}
