// fiber.hpp - a stack of its own and a switch to it: what the simulator needs to stop a thread of a kernel and go on with another.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

class Fiber {
 public:
  static constexpr size_t STACK = 256 << 10;   // touched pages only are paid for

  // Makes the fiber ready to run `entry` on `stack`, from its beginning. `entry` never returns.
  void prepare(char* stack, void (*entry)());
  // From the scheduler: runs the fiber until it leaves.
  void enter();
  // From the fiber: back to the scheduler.
  void leave(bool for_good);

 private:
  char* stack_ = nullptr;
#if defined(__x86_64__)
  void* top_ = nullptr;
#else
  ucontext_t context_;
#endif
  void* sanitizer_ = nullptr;
};

}  // namespace simt
