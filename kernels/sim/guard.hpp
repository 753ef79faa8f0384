// guard.hpp - memory that finds accesses outside an allocation. An allocation, rounded up to 16 bytes, lies between two pages that cannot be
// touched; the rest of its first page is filled with a pattern that is checked when it is freed. Fresh memory is
// poisoned with 0xff, which is NaN in every float. Freed memory cannot be touched again, until `forget`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace guard {

void* allocate(size_t bytes);
// Ends the program where `p` is not live, or something wrote before its beginning.
void release(void* p);
// True where [p, p + bytes) lies in one live allocation.
bool holds(uintptr_t p, size_t bytes);
// Gives the addresses of freed memory back; forget_last those of the last `count` releases.
void forget();
void forget_last(size_t count);

// From now on a touch of guarded memory names the running kernel (null for the host) before the program ends.
void explain_faults();
void doing(const char* kernel);

}  // namespace guard
