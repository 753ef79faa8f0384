#include "guard.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace guard {
namespace {

constexpr size_t PAGE = 4096;
constexpr unsigned char PATTERN = 0xc5;

struct Region { unsigned char* base; size_t mapped; size_t bytes; };
std::map<uintptr_t, Region> live;
std::vector<std::pair<unsigned char*, size_t>> freed;

const char* kernel_running = nullptr;
struct sigaction before;

// The handler that stood before takes over when the access is tried again.
void explain(int, siginfo_t* info, void*) {
  if (kernel_running) {
    char text[160];
    const int n = snprintf(text, sizeof text, "simulator: %s touches memory that is not its own (%p)\n", kernel_running, info->si_addr);
    if (n > 0 && write(2, text, static_cast<size_t>(n)) < 0) _exit(139);
  }
  sigaction(SIGSEGV, &before, nullptr);
}

[[noreturn]] void die(const char* what, const void* p) {
  fprintf(stderr, "simulator: %s (%p)\n", what, p);
  abort();
}

}  // namespace

void* allocate(size_t bytes) {
  const size_t rounded = (bytes + 15) / 16 * 16, body = (rounded + PAGE - 1) / PAGE * PAGE, mapped = body + 2 * PAGE;
  void* at = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) die("the host is out of memory", nullptr);
  unsigned char* base = static_cast<unsigned char*>(at);
  mprotect(base + PAGE, body, PROT_READ | PROT_WRITE);
  unsigned char* p = base + PAGE + body - rounded;
  memset(base + PAGE, PATTERN, static_cast<size_t>(p - base) - PAGE);
  memset(p, 0xff, rounded);
  live[reinterpret_cast<uintptr_t>(p)] = {base, mapped, bytes};
  return p;
}

void release(void* p) {
  const auto found = live.find(reinterpret_cast<uintptr_t>(p));
  if (found == live.end()) die("memory is freed that is not allocated", p);
  const Region region = found->second;
  for (unsigned char* c = region.base + PAGE; c < static_cast<unsigned char*>(p); ++c)
    if (*c != PATTERN) die("something wrote before the beginning of an allocation", p);
  live.erase(found);
  mmap(region.base, region.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed.emplace_back(region.base, region.mapped);
}

bool holds(uintptr_t p, size_t bytes) {
  auto next = live.upper_bound(p);
  if (next == live.begin()) return false;
  --next;
  return p - next->first <= next->second.bytes && bytes <= next->second.bytes - (p - next->first);
}

void forget_last(size_t count) {
  for (; count > 0; --count) {
    munmap(freed.back().first, freed.back().second);
    freed.pop_back();
  }
}

void forget() { forget_last(freed.size()); }

void explain_faults() {
  static bool installed = false;
  if (installed) return;
  installed = true;
  struct sigaction now = {};
  now.sa_sigaction = explain;
  now.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &now, &before);
}

void doing(const char* kernel) { kernel_running = kernel; }

}  // namespace guard
