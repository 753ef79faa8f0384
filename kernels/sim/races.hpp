// races.hpp - races: two threads touch the same word, one of them writes, and nothing orders them. Unlike a test of results, this finds
// them in any order of the threads.
//
// In shared memory a barrier of the block orders all its threads, one of the warp the threads of the warp; shuffles and matrix operations
// order nothing. An asynchronous copy writes from its start until its thread has waited for it, and no thread may touch its target meanwhile. In
// global memory the blocks of a launch are checked: nothing orders those.
#pragma once

#include "plat.cuh"

namespace races {

// The calling thread reads or writes `bytes` at an address of shared memory.
void read(u64 address, size_t bytes);
void write(u64 address, size_t bytes);
// It starts a copy of `bytes` to the address, ends a group of copies, waits for all groups but the last `groups`.
void copy_started(u64 address, size_t bytes);
void copy_group();
void copy_wait(u32 groups);
// Its block reads or writes `bytes` of global memory.
void read_global(u64 address, size_t bytes);
void write_global(u64 address, size_t bytes);

}  // namespace races
