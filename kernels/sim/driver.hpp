// driver.hpp - the state of the stand-in driver, and helpers of its calls.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "ptx.hpp"
#include "queue.hpp"

#define API extern "C" __attribute__((visibility("default"))) int

namespace driver {

enum Code : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  NOT_FOUND = 500,
  NOT_READY = 600,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  UNKNOWN = 999,
};

struct Context {};
// PTX runs as it is; in place of a cubin run the kernels' sources, compiled for the host.
struct Module {
  std::string image;
  std::shared_ptr<ptx::Module> ptx;
};
struct Function {
  const Kernel* kernel;
  std::shared_ptr<ptx::Module> ptx;
  int shared_limit;
};
struct Memory {
  size_t bytes;
  bool host;
};
// A graph, and what was made of it to be launched.
struct Graph {
  std::vector<std::function<void()>> work;
};
struct Device {
  int count, major, minor;
  u64 total;
};

constexpr Device DEVICE = {1, 9, 0, 8ull << 30};
constexpr int SHARED_DEFAULT = 49152, MULTIPROCESSORS = 132;

inline std::recursive_mutex mutex;
inline Device device = DEVICE;
inline bool initialized = false;
inline Context primary;
inline int primary_retained = 0;
inline std::set<void*> contexts, modules, graphs;
inline std::map<void*, queue::StreamPtr> streams;
inline std::map<void*, queue::EventPtr> events;
inline std::map<std::pair<const void*, const Kernel*>, Function> functions;
inline std::map<uintptr_t, Memory> memory;
inline u64 used = 0;
inline u64 pool_unused = 0, pool_threshold = 0;   // bytes of the memory pool: not in use, kept when a thread waits
inline u32 schedule = 0, launches_scheduled = 0;
inline i64 fail_alloc = 0, fail_launch = 0, fail_event = 0;
inline int fail_launch_code = 0;
// PAGEABLE: copies between the device and memory that is not page-locked. GROWTHS: allocations that the memory pool asked the system for.
// PAGE_LOCKS: allocations of page-locked memory.
enum Counted { LAUNCHES, TO_DEVICE, TO_HOST, IN_DEVICE, EVENT_WAITS, PAGEABLE, GROWTHS, PAGE_LOCKS, COUNTED };
inline u64 counts[COUNTED];
inline thread_local std::vector<void*> current;        // stack of contexts of this thread
inline thread_local queue::StreamPtr recording;        // the stream whose work this thread records
// Which recordings a call that may end one is kept from: GLOBAL, those of this thread and those of others that are GLOBAL; THREAD, those
// of this thread; RELAXED, none. A recording that is RELAXED keeps nothing from anybody.
enum CaptureMode : int { GLOBAL, THREAD, RELAXED };
inline thread_local int capture_mode = GLOBAL;

struct Lock : std::lock_guard<std::recursive_mutex> {
  Lock() : std::lock_guard<std::recursive_mutex>(mutex) {}
};

// Whether the calling thread has a context.
bool in_context();
// Dynamic shared memory that a block may have at most.
int shared_limit();
// Whether this thread or any other records on the stream: then the recording is broken, as by a call that cannot be recorded.
bool breaks_recording(const queue::StreamPtr* stream = nullptr);
// Whether a call that may end a recording is made where it does, by the modes: then those recordings are broken.
bool ends_recordings();
// Null where there is none.
queue::StreamPtr* find_stream(void* handle);
queue::EventPtr* find_event(void* handle);
// The allocation that holds all of [p, p + bytes), or null.
const Memory* find_memory(u64 p, size_t bytes);
int allocate(u64* p, size_t bytes, bool host);
// Allocates from the memory pool; also while its stream records, as a driver does: the memory is the graph's.
int allocate_pooled(u64* p, size_t bytes, void* stream);
// A thread has waited: what the pool does not use, beyond its threshold, goes back to the system.
void trim_pool();
int release(u64 p, bool host);
// Copies of pageable memory take their source at the call and have written when it returns; those of page-locked memory
// run with the stream. A copy that is recorded touches either kind when it is replayed, and only then.
int copy(u64 to, u64 from, size_t bytes, void* stream, Counted kind, bool wait);
// The kind and the architecture of a cubin or of PTX.
int read_image(const u8* image, Module* module);
int launch(Function* f, const u32 (&grid)[3], const u32 (&threads)[3], u32 shared, void* stream, void** args);

}  // namespace driver
