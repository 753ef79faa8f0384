// races.hpp - races in shared memory: two threads of a block touch the same word, one of them writes, and no barrier lies between. A barrier
// of the block orders all its threads, one of the warp the threads of the warp; shuffles and matrix operations order nothing. An asynchronous
// copy writes from its start until its thread has waited for it, and may be touched by nobody meanwhile. Other than a test of results, this
// finds a missing barrier in any order of the threads.
#pragma once

#include "plat.cuh"

namespace races {

// The calling thread reads or writes `bytes` at an address of shared memory.
void read(u64 address, size_t bytes);
void write(u64 address, size_t bytes);
// It starts a copy of 16 bytes to the address, ends a group of copies, waits for all groups but the last `groups`.
void copy_started(u64 address);
void copy_group();
void copy_wait(u32 groups);

}  // namespace races
