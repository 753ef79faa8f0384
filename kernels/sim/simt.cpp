// The scheduler of the simulator: blocks one behind the other, the fibers of a block in the order of the schedule.
#include "plat.cuh"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "fiber.hpp"
#include "guard.hpp"

namespace simt {
namespace {

constexpr size_t STATIC_SHARED = 48 << 10;

// A copy on its way to shared memory. It is there, for its own thread too, at the first barrier after its wait.
struct Copy { void* to; const void* from; u32 bytes; int group; };

enum class Wait { NOTHING, WARP, BLOCK };

struct Thread {
  Place place;
  Epoch epoch;
  Fiber fiber;
  Wait wait = Wait::NOTHING;
  bool done = false;
  std::vector<Copy> copies;
  int group = 0;             // the open group of copies
  int waited = 0;            // groups before this one have been waited for
  size_t statics = 0;        // bytes of static shared memory named so far
};

struct Warp { u32 alive, arrived; Op op; void* lanes[32]; };

struct Block {
  std::vector<Thread> threads;
  Warp warps[32];
  u32 alive, arrived;
  unsigned char* dynamic_shared;
  unsigned char* static_shared;
  u32 schedule;
  u64 random;
  const Launch* launch;
};

Block* block;
Thread* current;
u64 epochs = 0, launches = 0;
char* stacks;

u32 draw(u32 below) {
  block->random = block->random * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)((block->random >> 33) % below);
}

// Copies of groups before `group` arrive.
void arrive(Thread& t, int group) {
  size_t kept = 0;
  for (const Copy& copy : t.copies) {
    if (copy.group >= group) t.copies[kept++] = copy;
    else if (copy.from) memcpy(copy.to, copy.from, copy.bytes);
    else memset(copy.to, 0, copy.bytes);
  }
  t.copies.resize(kept);
}

// Leaves the thread to the scheduler. In odd schedules copies may arrive at any such point, in even ones as late as they may.
void pause(Wait wait) {
  if (block->schedule % 2 == 1 && !current->copies.empty() && draw(4) == 0) arrive(*current, current->group + 1);
  current->wait = wait;
  current->fiber.leave(false);
}

void release(Wait what, u32 first, u32 last) {
  for (u32 i = first; i < last; ++i)
    if (block->threads[i].wait == what) block->threads[i].wait = Wait::NOTHING;
}
u32 warp_end(u32 w) { return rk_min(w * 32 + 32, (u32)block->threads.size()); }
void release_warp(u32 w) {
  block->warps[w].arrived = 0;
  release(Wait::WARP, w * 32, warp_end(w));
}
void release_block() {
  block->arrived = 0;
  ++epochs;
  for (Thread& t : block->threads) t.epoch.block = epochs;
  release(Wait::BLOCK, 0, (u32)block->threads.size());
}

u16 half(u32 word, u32 i) { return (u16)(word >> (16 * i)); }

// The eight rows of a matrix come at once from the 32 banks, or the load takes longer: the swizzle's purpose.
void look_at_banks(void** lanes, u32 m) {
  u32 banks = 0;
  for (u32 i = 0; i < 8; ++i) banks |= 1u << ((uintptr_t)((Matrix*)lanes[m * 8 + i])->row / 16 % 8);
  if (banks != 255) die("rows of a matrix load share banks");
}

void matrix(void** lanes, bool transposed) {
  for (u32 m = 0; m < 4; ++m) look_at_banks(lanes, m);
  for (u32 lane = 0; lane < 32; ++lane) {
    Matrix& mine = *(Matrix*)lanes[lane];
    const u32 g = lane / 4, t = lane % 4;
    for (u32 m = 0; m < 4; ++m) {
      const auto row = [&](u32 i) {
        const void* p = ((Matrix*)lanes[m * 8 + i])->row;
        if ((uintptr_t)p % 16) die("a row of a matrix load is not aligned to 16 bytes");
        return (const u16*)p;
      };
      mine.r[m] = transposed ? row(t * 2)[g] | (u32)row(t * 2 + 1)[g] << 16 : row(g)[t * 2] | (u32)row(g)[t * 2 + 1] << 16;
    }
  }
}

void mma(void** lanes, float (*decode)(u16)) {
  float a[16][16], b[16][8], d[16][8];
  for (u32 lane = 0; lane < 32; ++lane) {
    const Mma& m = *(Mma*)lanes[lane];
    const u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < 2; ++i) {
      for (u32 j = 0; j < 4; ++j) a[g + j % 2 * 8][t * 2 + i + j / 2 * 8] = decode(half(m.a[j], i));
      for (u32 j = 0; j < 2; ++j) b[t * 2 + i + j * 8][g] = decode(half(m.b[j], i));
      for (u32 j = 0; j < 2; ++j) d[g + j * 8][t * 2 + i] = m.d[j * 2 + i];
    }
  }
  for (u32 r = 0; r < 16; ++r)
    for (u32 k = 0; k < 16; ++k)
      for (u32 c = 0; c < 8; ++c) d[r][c] += a[r][k] * b[k][c];
  for (u32 lane = 0; lane < 32; ++lane) {
    const Mma& m = *(Mma*)lanes[lane];
    for (u32 j = 0; j < 4; ++j) m.d[j] = d[lane / 4 + j / 2 * 8][lane % 4 * 2 + j % 2];
  }
}

void perform(Op op, void** lanes) {
  switch (op) {
    case Op::BARRIER: break;
    case Op::SHUFFLE:
      for (u32 i = 0; i < 32; ++i) {
        Shuffle& mine = *(Shuffle*)lanes[i];
        mine.result = ((Shuffle*)lanes[mine.from])->value;
      }
      break;
    case Op::BALLOT: {
      u32 bits = 0;
      for (u32 i = 0; i < 32; ++i) bits |= ((Shuffle*)lanes[i])->value << i;
      for (u32 i = 0; i < 32; ++i) ((Shuffle*)lanes[i])->result = bits;
      break;
    }
    case Op::MATRIX: matrix(lanes, false); break;
    case Op::MATRIX_TRANSPOSED: matrix(lanes, true); break;
    case Op::MMA_BF16: mma(lanes, from_bf16); break;
    case Op::MMA_F16: mma(lanes, from_f16); break;
  }
}

void thread_main() {
  block->launch->call(block->launch->args);
  Thread& t = *current;
  arrive(t, t.group + 1);
  t.done = true;
  Warp& warp = block->warps[t.place.thread / 32];
  --warp.alive;
  --block->alive;
  if (warp.alive && warp.arrived == warp.alive) die("a lane left the kernel while others of its warp wait for it");
  if (block->alive && block->arrived == block->alive) release_block();
  t.fiber.leave(true);
}

// A schedule above 1 lets some warps run ahead: in each round only some of them move, unless no other can.
void run_round(std::vector<Thread*>& ready) {
  ready.clear();
  bool moves[32];
  for (bool& m : moves) m = block->schedule < 2 || draw(3) == 0;
  for (int pass = 0; pass < 2 && ready.empty(); ++pass)
    for (Thread& t : block->threads)
      if (!t.done && t.wait == Wait::NOTHING && (pass == 1 || moves[t.place.thread / 32])) ready.push_back(&t);
  if (ready.empty()) die("threads wait for each other at different barriers");
  const u32 n = (u32)ready.size();
  if (block->schedule == 1)
    for (u32 i = 0; i < n / 2; ++i) std::swap(ready[i], ready[n - 1 - i]);
  else if (block->schedule > 1)
    for (u32 i = n; i > 1; --i) std::swap(ready[i - 1], ready[draw(i)]);
  for (Thread* t : ready) {
    current = t;
    t->fiber.enter();
  }
}

void run_block(u32 x, u32 y, u32 z, std::vector<Thread*>& ready) {
  const Launch& l = *block->launch;
  const u32 n = l.threads;
  block->alive = n;
  block->arrived = 0;
  ++epochs;
  if (l.shared) memset(block->dynamic_shared, 0xff, l.shared);
  memset(block->static_shared, 0xff, STATIC_SHARED);
  memset(block->warps, 0, sizeof block->warps);
  for (u32 i = 0; i < n; ++i) {
    Thread& t = block->threads[i];
    t.place = {i, n, x, y, z, l.grid[0]};
    t.epoch = {launches, epochs, epochs, epochs};
    t.wait = Wait::NOTHING;
    t.done = false;
    t.copies.clear();
    t.group = t.waited = 0;
    t.statics = 0;
    ++block->warps[i / 32].alive;
    t.fiber.prepare(stacks + i * Fiber::STACK, thread_main);
  }
  while (block->alive) run_round(ready);
}

}  // namespace

const Place& here() { return current->place; }
const Epoch& epoch() { return current->epoch; }

void die(const char* what) {
  if (current) {
    const Place& p = current->place;
    fprintf(stderr, "simulator: %s (block %u,%u,%u thread %u)\n", what, p.block_x, p.block_y, p.block_z, p.thread);
  } else {
    fprintf(stderr, "simulator: %s\n", what);
  }
  abort();
}

void together(Op op, void* mine) {
  if (op == Op::BARRIER) arrive(*current, current->waited);
  const u32 thread = current->place.thread;
  Warp& warp = block->warps[thread / 32];
  if (warp.arrived == 0) warp.op = op;
  else if (warp.op != op) die("lanes of a warp meet at different operations");
  warp.lanes[thread % 32] = mine;
  if (++warp.arrived < warp.alive) return pause(Wait::WARP);
  if (warp.alive != 32) die("a lane left the kernel while others of its warp wait for it");
  perform(op, warp.lanes);
  release_warp(thread / 32);
  if (op == Op::BARRIER) {
    ++epochs;
    for (u32 i = thread / 32 * 32; i < warp_end(thread / 32); ++i) block->threads[i].epoch.warp = epochs;
  }
  if (block->schedule > 1 && draw(4) == 0) pause(Wait::NOTHING);
}

void block_barrier() {
  arrive(*current, current->waited);
  if (++block->arrived < block->alive) return pause(Wait::BLOCK);
  release_block();
}

void copy_async(void* shared, const void* global, u32 bytes, bool valid) {
  if (((uintptr_t)shared | (uintptr_t)global) % bytes) die("an asynchronous copy is not aligned to its size");
  memset(shared, 0xff, bytes);   // from now until it arrives
  current->copies.push_back({shared, valid ? global : nullptr, bytes, current->group});
}
void copy_commit() { ++current->group; }
void copy_wait(int groups) {
  current->waited = current->group - groups;
  if (block->schedule > 1) pause(Wait::NOTHING);
}

void* dynamic_shared() { return block->dynamic_shared; }
size_t dynamic_shared_bytes() { return block->launch->shared; }
void* static_shared(size_t bytes) {
  void* p = block->static_shared + current->statics;
  current->statics += (bytes + 15) / 16 * 16;
  if (current->statics > STATIC_SHARED) die("more than 48 KiB of static shared memory");
  return p;
}

void run(const Launch& launch) {
  static Block* const the_block = new Block();
  static const size_t stacks_bytes = 1024 * Fiber::STACK;
  if (!stacks) stacks = (char*)mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  block = the_block;
  ++launches;
  block->threads.resize(launch.threads);
  block->launch = &launch;
  block->schedule = launch.schedule;
  block->random = 0x9e3779b97f4a7c15ull * (launch.schedule + 1);
  block->dynamic_shared = launch.shared ? (unsigned char*)guard::allocate(launch.shared) : nullptr;
  block->static_shared = (unsigned char*)guard::allocate(STATIC_SHARED);
  std::vector<Thread*> ready;
  const u64 blocks = (u64)launch.grid[0] * launch.grid[1] * launch.grid[2];
  for (u64 i = 0; i < blocks; ++i) {
    const u64 at = launch.schedule == 1 ? blocks - 1 - i : i;
    run_block((u32)(at % launch.grid[0]), (u32)(at / launch.grid[0] % launch.grid[1]), (u32)(at / launch.grid[0] / launch.grid[1]), ready);
  }
  current = nullptr;
  if (block->dynamic_shared) guard::release(block->dynamic_shared);
  guard::release(block->static_shared);
  guard::forget_last(launch.shared ? 2 : 1);
}

float from_bf16(u16 x) {
  const u32 bits = (u32)x << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

float from_f16(u16 x) {
  static const std::vector<float> table = [] {
    std::vector<float> t(65536);
    for (u32 i = 0; i < 65536; ++i) {
      const u32 exponent = i >> 10 & 31, fraction = i & 1023;
      float f = exponent == 0 ? std::ldexp((float)fraction, -24)
              : exponent < 31 ? std::ldexp((float)(fraction | 1024), (int)exponent - 25)
              : fraction ? NAN : INFINITY;
      t[i] = i >> 15 ? -f : f;
    }
    return t;
  }();
  return table[x];
}

u16 to_bf16(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  if (x != x) return 0x7fff;
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Rounds to nearest, ties to even, as the conversion instruction does.
u16 to_f16(float x) {
  if (x != x) return 0x7fff;
  const u16 sign = std::signbit(x) ? 0x8000 : 0;
  const float size = std::fabs(x);
  if (size >= 65520.f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);                             // size = m * 2^exponent, m in [1/2, 1)
  const int unit = size < 0x1p-14f ? -24 : exponent - 11;   // exponent of the last place
  const u32 places = (u32)std::nearbyint(std::ldexp(size, -unit));
  return sign | (u16)(places + ((u32)(unit + 24) << 10));
}

}  // namespace simt
