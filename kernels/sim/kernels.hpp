// kernels.hpp - the kernels by name, as the simulator runs them.
#pragma once

#include "plat.cuh"

struct Kernel {
  const char* name;
  u32 threads;        // launch bound
  size_t args_bytes;
  simt::Call call;
};

// Null where there is none of the name.
const Kernel* find_kernel(const char* name);
