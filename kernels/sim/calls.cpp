// calls.cpp - a stand-in for libcuda.so.1 on machines without a GPU: the driver's calls that the crate makes, over host
// memory, with the kernels run by the simulator. PTX given to it is run; cubins are checked (format, architecture, names
// of kernels), and the sources run instead. Stricter than a driver: memory is poisoned and guarded, freed memory cannot
// be touched by work that is still queued, a null stream orders nothing but itself.
#include <algorithm>
#include <cstdio>

#include "driver.hpp"
#include "guard.hpp"

using namespace driver;

namespace {

int attribute(int which) {
  switch (which) {
    case 1: return 1024;  // threads of a block
    case 2:
    case 3: return 1024;
    case 5: return 0x7fffffff;  // grid
    case 6:
    case 7: return 65535;
    case 8: return SHARED_DEFAULT;
    case 10: return 32;
    case 11: return 0x7fffffff;  // pitch
    case 16: return MULTIPROCESSORS;
    case 38: return 60 << 20;  // L2
    case 75: return device.major;
    case 76: return device.minor;
    case 81: return shared_limit() + 1024;
    case 97: return shared_limit();
    default: return 1;  // what asks whether something can be done
  }
}

const std::map<int, const char*> NAMES = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {218, "CUDA_ERROR_INVALID_PTX"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {401, "CUDA_ERROR_ILLEGAL_STATE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

template <class Word> int fill(u64 to, Word word, size_t words, void* handle, bool wait) {
  if (!in_context()) return INVALID_CONTEXT;
  const queue::StreamPtr* stream = find_stream(handle);
  if (!stream) return INVALID_HANDLE;
  if (!find_memory(to, words * sizeof(Word)) || to % sizeof(Word)) return INVALID_VALUE;
  queue::submit(*stream, [to, word, words] { std::fill_n(reinterpret_cast<Word*>(to), words, word); });
  if (wait) queue::finish(*stream);
  return SUCCESS;
}

// Whether this is the call about events (making, recording, ending one) that was chosen to fail.
bool event_fails() { return fail_event > 0 && --fail_event == 0; }

}  // namespace


API cuInit(u32) {
  Lock lock;
  guard::explain_faults();
  if (device.count == 0) return NO_DEVICE;
  initialized = true;
  return SUCCESS;
}
API cuDriverGetVersion(int* version) {
  *version = 12040;
  return SUCCESS;
}
API cuDeviceGetCount(int* n) {
  Lock lock;
  *n = device.count;
  return initialized ? SUCCESS : NOT_INITIALIZED;
}
API cuDeviceGet(int* d, int ordinal) {
  Lock lock;
  if (!initialized) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= device.count) return INVALID_DEVICE;
  *d = ordinal;
  return SUCCESS;
}
API cuDeviceGetName(char* name, int n, int) {
  snprintf(name, (size_t)n, "simulated GPU");
  return SUCCESS;
}
API cuDeviceTotalMem_v2(size_t* bytes, int) {
  Lock lock;
  *bytes = device.total;
  return SUCCESS;
}
API cuDeviceGetAttribute(int* value, int which, int) {
  Lock lock;
  *value = attribute(which);
  return SUCCESS;
}
API cuDeviceGetUuid_v2(u8* uuid, int d) {
  memset(uuid, d, 16);
  return SUCCESS;
}
API cuDeviceGetUuid(u8* uuid, int d) { return cuDeviceGetUuid_v2(uuid, d); }
API cuMemGetInfo_v2(size_t* available, size_t* total) {
  Lock lock;
  *available = device.total - used;
  *total = device.total;
  return SUCCESS;
}

API cuDevicePrimaryCtxRetain(void** context, int) {
  Lock lock;
  if (!initialized) return NOT_INITIALIZED;
  ++primary_retained;
  contexts.insert(&primary);
  *context = &primary;
  return SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int) {
  Lock lock;
  if (primary_retained == 0) return INVALID_CONTEXT;
  if (--primary_retained == 0) contexts.erase(&primary);
  return SUCCESS;
}
API cuDevicePrimaryCtxRelease(int d) { return cuDevicePrimaryCtxRelease_v2(d); }
API cuCtxCreate_v2(void** context, u32, int) {
  Lock lock;
  if (!initialized) return NOT_INITIALIZED;
  *context = new Context;
  contexts.insert(*context);
  current.push_back(*context);
  return SUCCESS;
}
API cuCtxCreate_v3(void** context, void*, int, u32 flags, int d) { return cuCtxCreate_v2(context, flags, d); }
API cuCtxCreate_v4(void** context, void*, u32 flags, int d) { return cuCtxCreate_v2(context, flags, d); }
API cuCtxDestroy_v2(void* context) {
  Lock lock;
  if (context == &primary || !contexts.erase(context)) return INVALID_CONTEXT;
  if (!current.empty() && current.back() == context) current.pop_back();
  delete static_cast<Context*>(context);
  return SUCCESS;
}
API cuCtxSetCurrent(void* context) {
  Lock lock;
  if (context && !contexts.count(context)) return INVALID_CONTEXT;
  if (!current.empty()) current.pop_back();
  if (context) current.push_back(context);
  return SUCCESS;
}
API cuCtxGetCurrent(void** context) {
  *context = current.empty() ? nullptr : current.back();
  return SUCCESS;
}
API cuCtxPushCurrent_v2(void* context) {
  current.push_back(context);
  return SUCCESS;
}
API cuCtxPopCurrent_v2(void** context) {
  if (current.empty()) return INVALID_CONTEXT;
  *context = current.back();
  current.pop_back();
  return SUCCESS;
}
API cuCtxGetDevice(int* d) {
  *d = 0;
  return in_context() ? SUCCESS : INVALID_CONTEXT;
}
API cuCtxSynchronize() {
  Lock lock;
  if (breaks_recording()) return CAPTURE_UNSUPPORTED;
  queue::finish_all();
  trim_pool();
  return SUCCESS;
}

API cuStreamCreate(void** stream, u32) {
  Lock lock;
  if (!in_context()) return INVALID_CONTEXT;
  queue::StreamPtr s = queue::create();
  *stream = s.get();
  streams[*stream] = s;
  return SUCCESS;
}
API cuStreamCreateWithPriority(void** stream, u32 flags, int) { return cuStreamCreate(stream, flags); }
API cuStreamDestroy_v2(void* stream) {
  Lock lock;
  const auto found = streams.find(stream);
  if (!stream || found == streams.end()) return INVALID_HANDLE;
  queue::destroy(found->second);
  streams.erase(found);
  return SUCCESS;
}
API cuStreamSynchronize(void* stream) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  if (!s) return INVALID_HANDLE;
  if (breaks_recording(s)) return CAPTURE_UNSUPPORTED;
  queue::finish(*s);
  trim_pool();
  return SUCCESS;
}
API cuStreamQuery(void* stream) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  if (s && breaks_recording(s)) return CAPTURE_UNSUPPORTED;
  return !s ? INVALID_HANDLE : queue::finished(*s) ? SUCCESS : NOT_READY;
}
API cuStreamWaitEvent(void* stream, void* event, u32) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  const queue::EventPtr* e = find_event(event);
  if (!s || !e) return INVALID_HANDLE;
  if (breaks_recording(s)) return CAPTURE_UNSUPPORTED;
  ++counts[EVENT_WAITS];
  queue::wait(*s, *e);
  return SUCCESS;
}
API cuLaunchHostFunc(void* stream, void (*f)(void*), void* arg) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  if (!s) return INVALID_HANDLE;
  queue::submit(*s, [f, arg] { f(arg); });
  return SUCCESS;
}

API cuEventCreate(void** event, u32) {
  Lock lock;
  if (!in_context()) return INVALID_CONTEXT;
  if (event_fails()) return OUT_OF_MEMORY;
  queue::EventPtr e = std::make_shared<queue::Event>();
  *event = e.get();
  events[*event] = e;
  return SUCCESS;
}
API cuEventDestroy_v2(void* event) {
  Lock lock;
  if (!events.erase(event)) return INVALID_HANDLE;
  return event_fails() ? UNKNOWN : SUCCESS;
}
API cuEventRecord(void* event, void* stream) {
  Lock lock;
  const queue::EventPtr* e = find_event(event);
  const queue::StreamPtr* s = find_stream(stream);
  if (!s || !e) return INVALID_HANDLE;
  if ((*s)->recording) return SUCCESS;  // a mark within the graph, which nothing here waits for
  if (event_fails()) return UNKNOWN;
  queue::record(*s, *e);
  return SUCCESS;
}
API cuEventSynchronize(void* event) {
  Lock lock;
  const queue::EventPtr* e = find_event(event);
  if (!e) return INVALID_HANDLE;
  if (ends_recordings()) return CAPTURE_UNSUPPORTED;
  queue::finish(*e);
  trim_pool();
  return SUCCESS;
}
API cuEventQuery(void* event) {
  Lock lock;
  const queue::EventPtr* e = find_event(event);
  if (e && ends_recordings()) return CAPTURE_UNSUPPORTED;
  return !e ? INVALID_HANDLE : queue::finished(*e) ? SUCCESS : NOT_READY;
}
API cuEventElapsedTime(float* milliseconds, void* first, void* last) {
  Lock lock;
  const queue::EventPtr *a = find_event(first), *b = find_event(last);
  if (!a || !b || !(*a)->recorded || !(*b)->recorded) return INVALID_HANDLE;
  if (ends_recordings()) return CAPTURE_UNSUPPORTED;
  if ((*a)->done < (*a)->recorded || (*b)->done < (*b)->recorded) return NOT_READY;
  *milliseconds = (float)((*b)->milliseconds - (*a)->milliseconds);
  return SUCCESS;
}
API cuEventElapsedTime_v2(float* milliseconds, void* first, void* last) {
  return cuEventElapsedTime(milliseconds, first, last);
}

API cuMemAlloc_v2(u64* p, size_t bytes) {
  Lock lock;
  return allocate(p, bytes, false);
}
API cuMemAllocAsync(u64* p, size_t bytes, void* stream) {
  Lock lock;
  return allocate_pooled(p, bytes, stream);
}
API cuDeviceGetDefaultMemPool(void** pool, int) {
  Lock lock;
  *pool = &pool_threshold;
  return initialized ? SUCCESS : NOT_INITIALIZED;
}
API cuMemPoolSetAttribute(void* pool, int which, void* value) {
  Lock lock;
  if (pool != &pool_threshold || which != 4) return INVALID_VALUE;
  pool_threshold = *static_cast<u64*>(value);
  return SUCCESS;
}
API cuMemFree_v2(u64 p) {
  Lock lock;
  if (breaks_recording()) return CAPTURE_UNSUPPORTED;
  return release(p, false);
}
API cuMemFreeAsync(u64 p, void* stream) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  if (!s) return INVALID_HANDLE;
  if (!find_memory(p, 0)) return INVALID_VALUE;
  if (breaks_recording(s)) return CAPTURE_UNSUPPORTED;
  queue::submit(*s, [p] {
    pool_unused += find_memory(p, 0)->bytes;
    if (release(p, false) != SUCCESS) simt::die("memory is freed twice");
  });
  return SUCCESS;
}
API cuMemGetAddressRange_v2(u64* base, size_t* bytes, u64 p) {
  Lock lock;
  const Memory* m = find_memory(p, 1);
  if (!m) return NOT_FOUND;
  *base = (--memory.upper_bound(p))->first;
  *bytes = m->bytes;
  return SUCCESS;
}
API cuMemHostAlloc(void** p, size_t bytes, u32) {
  Lock lock;
  return allocate(reinterpret_cast<u64*>(p), bytes, true);
}
API cuMemFreeHost(void* p) {
  Lock lock;
  if (breaks_recording()) return CAPTURE_UNSUPPORTED;
  return release((u64)p, true);
}
API cuMemHostGetDevicePointer_v2(u64* p, void* host, u32) {
  Lock lock;
  const Memory* m = find_memory((u64)host, 0);
  if (!m || !m->host) return INVALID_VALUE;
  *p = (u64)host;
  return SUCCESS;
}

API cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t n, void* s) {
  Lock lock;
  return copy(to, (u64)from, n, s, TO_DEVICE, false);
}
API cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t n, void* s) {
  Lock lock;
  return copy((u64)to, from, n, s, TO_HOST, false);
}
API cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t n, void* s) {
  Lock lock;
  return copy(to, from, n, s, IN_DEVICE, false);
}
API cuMemcpyHtoD_v2(u64 to, const void* from, size_t n) {
  Lock lock;
  return copy(to, (u64)from, n, nullptr, TO_DEVICE, true);
}
API cuMemcpyDtoH_v2(void* to, u64 from, size_t n) {
  Lock lock;
  return copy((u64)to, from, n, nullptr, TO_HOST, true);
}
API cuMemcpyDtoD_v2(u64 to, u64 from, size_t n) {
  Lock lock;
  return copy(to, from, n, nullptr, IN_DEVICE, true);
}
// Rows of bytes, `pitch` bytes apart on each side.
struct Copy2d {
  size_t from_x, from_y;
  int from_kind;
  const void* from_host;
  u64 from_device;
  void* from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_kind;
  void* to_host;
  u64 to_device;
  void* to_array;
  size_t to_pitch;
  size_t width, height;
};
API cuMemcpy2DAsync_v2(const Copy2d* given, void* handle) {
  Lock lock;
  constexpr int HOST = 1, DEVICE = 2;
  constexpr size_t MOST_PITCH = 0x7fffffff;
  const Copy2d c = *given;
  if (!in_context()) return INVALID_CONTEXT;
  const queue::StreamPtr* stream = find_stream(handle);
  if (!stream) return INVALID_HANDLE;
  if (c.from_x || c.from_y || c.to_x || c.to_y || c.width == 0 || c.height == 0) return INVALID_VALUE;
  if (c.from_pitch < c.width || c.to_pitch < c.width || c.from_pitch > MOST_PITCH || c.to_pitch > MOST_PITCH)
    return INVALID_VALUE;
  if ((c.from_kind != HOST && c.from_kind != DEVICE) || (c.to_kind != HOST && c.to_kind != DEVICE)) return INVALID_VALUE;
  const u64 from = c.from_kind == HOST ? (u64)c.from_host : c.from_device, to = c.to_kind == HOST ? (u64)c.to_host : c.to_device;
  const Memory* source = find_memory(from, (c.height - 1) * c.from_pitch + c.width);
  const Memory* target = find_memory(to, (c.height - 1) * c.to_pitch + c.width);
  if (!source || !target || source->host != (c.from_kind == HOST) || target->host != (c.to_kind == HOST)) return INVALID_VALUE;
  ++counts[c.to_kind == HOST ? TO_HOST : c.from_kind == HOST ? TO_DEVICE : IN_DEVICE];
  queue::submit(*stream, [=] {
    for (size_t row = 0; row < c.height; ++row)
      memmove(reinterpret_cast<u8*>(to) + row * c.to_pitch, reinterpret_cast<u8*>(from) + row * c.from_pitch, c.width);
  });
  return SUCCESS;
}
API cuMemsetD8Async(u64 to, u8 value, size_t n, void* s) {
  Lock lock;
  return fill(to, value, n, s, false);
}
API cuMemsetD32Async(u64 to, u32 value, size_t n, void* s) {
  Lock lock;
  return fill(to, value, n, s, false);
}
API cuMemsetD8_v2(u64 to, u8 value, size_t n) {
  Lock lock;
  return fill(to, value, n, nullptr, true);
}

API cuModuleLoadData(void** module, const void* image) {
  Lock lock;
  if (!in_context()) return INVALID_CONTEXT;
  Module read;
  if (const int code = read_image(static_cast<const u8*>(image), &read)) return code;
  *module = new Module(std::move(read));
  modules.insert(*module);
  return SUCCESS;
}
API cuModuleLoadDataEx(void** module, const void* image, u32, int*, void**) { return cuModuleLoadData(module, image); }
API cuModuleUnload(void* module) {
  Lock lock;
  if (!modules.erase(module)) return INVALID_HANDLE;
  for (auto f = functions.begin(); f != functions.end();)
    f = f->first.first == module ? functions.erase(f) : std::next(f);
  delete static_cast<Module*>(module);
  return SUCCESS;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  Lock lock;
  if (!modules.count(module)) return INVALID_HANDLE;
  const Module& from = *static_cast<Module*>(module);
  const Kernel* kernel = from.ptx ? from.ptx->find(name) : find_kernel(name);
  if (!kernel || from.image.find(name) == std::string::npos) return NOT_FOUND;
  *function = &functions.emplace(std::make_pair(module, kernel), Function{kernel, from.ptx, SHARED_DEFAULT}).first->second;
  return SUCCESS;
}
API cuFuncSetAttribute(void* function, int which, int value) {
  Lock lock;
  if (which != 8) return SUCCESS;
  if (value < 0 || value > shared_limit()) return INVALID_VALUE;
  static_cast<Function*>(function)->shared_limit = value;
  return SUCCESS;
}
API cuFuncGetAttribute(int* value, int which, void* function) {
  Lock lock;
  const Function* f = static_cast<Function*>(function);
  *value = which == 0 ? (int)f->kernel->threads : which == 8 ? f->shared_limit : 0;
  return SUCCESS;
}
API cuLaunchKernel(void* f, u32 gx, u32 gy, u32 gz, u32 tx, u32 ty, u32 tz, u32 shared, void* stream, void** args,
                   void**) {
  Lock lock;
  return launch(static_cast<Function*>(f), {gx, gy, gz}, {tx, ty, tz}, shared, stream, args);
}

API cuGetErrorName(int code, const char** name) {
  const auto found = NAMES.find(code);
  *name = found == NAMES.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return SUCCESS;
}
API cuGetErrorString(int, const char** text) {
  *text = "an error of the simulated driver";
  return SUCCESS;
}
