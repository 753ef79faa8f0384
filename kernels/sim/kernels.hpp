// kernels.hpp - a kernel as the simulator runs it, and those compiled from the sources by name.
#pragma once

#include <string>

#include "plat.cuh"

struct Kernel {
  std::string name;
  u32 threads = 0;        // launch bound
  size_t args_bytes = 0;
  simt::Call call;
};

// Null where there is none of the name.
const Kernel* find_kernel(const std::string& name);
