#include "driver.hpp"

#include <algorithm>
#include <cstdlib>

#include "guard.hpp"

namespace driver {

int shared_limit() { return device.major == 9 ? 232448 : device.major == 8 && device.minor == 0 ? 166912 : 101376; }
bool in_context() { return !current.empty() && current.back() && contexts.count(current.back()); }

bool breaks_recording(const queue::StreamPtr* stream) {
  const queue::StreamPtr& of = stream ? *stream : recording;
  if (!of || !of->recording) return false;
  of->recording->broken = true;
  return true;
}

bool ends_recordings() {
  if (capture_mode == RELAXED) return false;
  bool ends = false;
  const auto end = [&](const queue::StreamPtr& s, bool of_this_thread) {
    if (!s || !s->recording) return;
    const int mode = s->recording->mode;
    if (of_this_thread ? mode != RELAXED : capture_mode == GLOBAL && mode == GLOBAL) ends = s->recording->broken = true;
  };
  for (const auto& s : streams) end(s.second, s.second == recording);
  return ends;
}

queue::StreamPtr* find_stream(void* handle) {
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {  // the default stream, by its three names
    queue::StreamPtr& s = streams[nullptr];
    if (!s) s = queue::create();
    return &s;
  }
  const auto found = streams.find(handle);
  return found == streams.end() ? nullptr : &found->second;
}
queue::EventPtr* find_event(void* handle) {
  const auto found = events.find(handle);
  return found == events.end() ? nullptr : &found->second;
}

const Memory* find_memory(u64 p, size_t bytes) {
  auto next = memory.upper_bound(p);
  if (next == memory.begin()) return nullptr;
  --next;
  const u64 offset = p - next->first;
  return offset <= next->second.bytes && bytes <= next->second.bytes - offset ? &next->second : nullptr;
}

int allocate(u64* p, size_t bytes, bool host) {
  if (!in_context()) return INVALID_CONTEXT;
  if (breaks_recording()) return CAPTURE_UNSUPPORTED;
  if (bytes == 0) return INVALID_VALUE;
  if (fail_alloc > 0 && --fail_alloc == 0) return OUT_OF_MEMORY;
  if (!host && used + bytes > device.total) return OUT_OF_MEMORY;
  *p = reinterpret_cast<u64>(guard::allocate(bytes));
  memory[*p] = {bytes, host};
  if (!host) used += bytes;
  counts[PAGE_LOCKS] += host;
  return SUCCESS;
}

int allocate_pooled(u64* p, size_t bytes, void* handle) {
  const queue::StreamPtr* stream = find_stream(handle);
  if (!stream) return INVALID_HANDLE;
  const queue::StreamPtr recorder = (*stream)->recording ? std::move(recording) : nullptr;
  const int code = allocate(p, bytes, false);
  if (recorder) recording = recorder;
  if (code != SUCCESS) return code;
  if (pool_unused < bytes) ++counts[GROWTHS];
  pool_unused -= std::min<u64>(pool_unused, bytes);
  return SUCCESS;
}

void trim_pool() { pool_unused = std::min(pool_unused, pool_threshold); }

int release(u64 p, bool host) {
  const auto found = memory.find(p);
  if (found == memory.end() || found->second.host != host) return INVALID_VALUE;
  if (!host) used -= found->second.bytes;
  memory.erase(found);
  guard::release(reinterpret_cast<void*>(p));
  return SUCCESS;
}

int copy(u64 to, u64 from, size_t bytes, void* handle, Counted kind, bool wait) {
  if (!in_context()) return INVALID_CONTEXT;
  const queue::StreamPtr* stream = find_stream(handle);
  if (!stream) return INVALID_HANDLE;
  if (bytes == 0) return SUCCESS;
  const Memory* target = find_memory(to, bytes);
  const Memory* source = find_memory(from, bytes);
  if ((kind != TO_HOST && !target) || (kind != TO_DEVICE && !source)) return INVALID_VALUE;
  const bool pageable = !target || !source, recorded = (*stream)->recording != nullptr;
  if ((wait || (pageable && !recorded)) && (breaks_recording() || breaks_recording(stream))) return CAPTURE_UNSUPPORTED;
  ++counts[kind];
  counts[PAGEABLE] += pageable;
  if (kind == TO_DEVICE && !source && !recorded) {
    std::vector<u8> taken(reinterpret_cast<u8*>(from), reinterpret_cast<u8*>(from) + bytes);
    queue::submit(*stream, [to, taken] { memcpy(reinterpret_cast<void*>(to), taken.data(), taken.size()); });
  } else {
    queue::submit(*stream,
                  [to, from, bytes] { memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
  }
  if (wait || (kind == TO_HOST && !target && !recorded)) queue::finish(*stream);
  return SUCCESS;
}

template <class T> T field(const u8* image, size_t at) {
  T value;
  memcpy(&value, image + at, sizeof value);
  return value;
}

// A cubin names its architecture in its flags, PTX in its text; the length of a cubin is where its headers end.
int read_image(const u8* image, Module* module) {
  std::string* const text = &module->image;
  if (memcmp(image,
             "\x7f"
             "ELF",
             4) == 0) {
    const u64 sections = field<u64>(image, 40), programs = field<u64>(image, 32);
    const u64 end = std::max(sections + (u64)field<u16>(image, 58) * field<u16>(image, 60),
                             programs + (u64)field<u16>(image, 54) * field<u16>(image, 56));
    const int arch = field<u32>(image, 48) & 0xff;
    if (arch / 10 != device.major || arch % 10 > device.minor) return NO_BINARY_FOR_GPU;
    text->assign(reinterpret_cast<const char*>(image), end);
    return SUCCESS;
  }
  text->assign(reinterpret_cast<const char*>(image));
  const size_t target = text->find(".target sm_");
  if (target == std::string::npos) return text->find(".version") == std::string::npos ? INVALID_IMAGE : INVALID_PTX;
  if (atoi(text->c_str() + target + 11) > device.major * 10 + device.minor) return INVALID_PTX;
  module->ptx = ptx::Module::read(*text);
  return module->ptx ? SUCCESS : INVALID_PTX;
}

int launch(Function* f, const u32 (&grid)[3], const u32 (&threads)[3], u32 shared, void* handle, void** args) {
  if (!in_context()) return INVALID_CONTEXT;
  const queue::StreamPtr* stream = find_stream(handle);
  if (!stream || !f) return INVALID_HANDLE;
  const u32 n = threads[0] * threads[1] * threads[2];
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535)
    return INVALID_VALUE;
  if (n == 0 || n > 1024 || threads[1] != 1 || threads[2] != 1 || n % 32 || !args) return INVALID_VALUE;
  if (shared > (u32)f->shared_limit) return INVALID_VALUE;
  if (n > f->kernel->threads) return 701;
  if (fail_launch > 0 && --fail_launch == 0) return fail_launch_code;
  ++counts[LAUNCHES];
  const std::vector<u8> copied((const u8*)args[0], (const u8*)args[0] + f->kernel->args_bytes);
  const u32 order = schedule < 2 ? schedule : schedule + 2 * launches_scheduled++;
  const Kernel* kernel = f->kernel;
  queue::submit(*stream, [=, ptx = f->ptx] {
    guard::doing(kernel->name.c_str());
    simt::run({kernel->call, copied.data(), {grid[0], grid[1], grid[2]}, n, shared, order});
    guard::doing(nullptr);
  });
  return SUCCESS;
}

}  // namespace driver
