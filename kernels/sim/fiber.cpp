// The switch saves what a call must keep (x86-64) or is left to the C library (elsewhere). The address sanitizer is told of every switch.
#include "fiber.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

#if defined(__SANITIZE_ADDRESS__)
void* scheduler_sanitizer;
const void* scheduler_stack;
size_t scheduler_size;
void before_enter(void** mine, const void* stack) { __sanitizer_start_switch_fiber(mine, stack, Fiber::STACK); }
void after_enter(void* mine) { __sanitizer_finish_switch_fiber(mine, nullptr, nullptr); }
void before_leave(void** mine) { __sanitizer_start_switch_fiber(mine, scheduler_stack, scheduler_size); }
void after_leave(void* mine) { __sanitizer_finish_switch_fiber(mine, &scheduler_stack, &scheduler_size); }
void forget(char* stack) { __asan_unpoison_memory_region(stack, Fiber::STACK); }
#else
void* scheduler_sanitizer;
void before_enter(void**, const void*) {}
void after_enter(void*) {}
void before_leave(void**) {}
void after_leave(void*) {}
void forget(char*) {}
#endif

void (*first_entry)();
void start() {
  after_leave(nullptr);
  first_entry();
}

}  // namespace

#if defined(__x86_64__)

extern "C" void rk_switch(void** save, void* load);
asm(R"(
.text
.hidden rk_switch
.globl rk_switch
.type rk_switch,@function
rk_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rk_switch,.-rk_switch
)");

static void* scheduler_top;

void Fiber::prepare(char* stack, void (*entry)()) {
  forget(stack);
  stack_ = stack;
  first_entry = entry;
  void** top = reinterpret_cast<void**>(stack + STACK);
  *--top = nullptr;                                    // alignment: a function begins 8 bytes off 16
  *--top = reinterpret_cast<void*>(start);
  for (int i = 0; i < 6; ++i) *--top = nullptr;        // the registers rk_switch takes
  top_ = top;
}
static void to_fiber(void* top) { rk_switch(&scheduler_top, top); }
#define TO_SCHEDULER() rk_switch(&top_, scheduler_top)
#define TO_FIBER() to_fiber(top_)

#else

static ucontext_t scheduler_context;

void Fiber::prepare(char* stack, void (*entry)()) {
  forget(stack);
  stack_ = stack;
  first_entry = entry;
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = STACK;
  context_.uc_link = nullptr;
  makecontext(&context_, start, 0);
}
#define TO_SCHEDULER() swapcontext(&context_, &scheduler_context)
#define TO_FIBER() swapcontext(&scheduler_context, &context_)

#endif

void Fiber::enter() {
  before_enter(&scheduler_sanitizer, stack_);
  TO_FIBER();
  after_enter(scheduler_sanitizer);
}

void Fiber::leave(bool for_good) {
  before_leave(for_good ? nullptr : &sanitizer_);
  TO_SCHEDULER();
  after_leave(sanitizer_);
}

}  // namespace simt
