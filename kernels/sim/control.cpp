// control.cpp - how tests steer the stand-in driver; they find these by name.
#include <algorithm>

#include "driver.hpp"
#include "guard.hpp"

using namespace driver;

#define CONTROL extern "C" __attribute__((visibility("default")))

CONTROL void rk_sim_reset() {
  Lock lock;
  queue::reset();
  streams.clear();
  events.clear();
  functions.clear();
  for (void* m : modules) delete static_cast<Module*>(m);
  modules.clear();
  for (void* g : graphs) delete static_cast<Graph*>(g);
  graphs.clear();
  recording.reset();
  for (const auto& m : memory) guard::release(reinterpret_cast<void*>(m.first));
  memory.clear();
  guard::forget();
  for (void* c : contexts)
    if (c != &primary) delete static_cast<Context*>(c);
  contexts.clear();
  used = pool_unused = pool_threshold = 0;
  primary_retained = 0;
  device = DEVICE;
  initialized = false;
  schedule = launches_scheduled = 0;
  fail_alloc = fail_launch = fail_event = 0;
  std::fill(counts, counts + COUNTED, 0);
}
CONTROL void rk_sim_seed(u32 seed) {
  Lock lock;
  schedule = seed;
  launches_scheduled = 0;
}
CONTROL void rk_sim_streams(u32 seed) {
  Lock lock;
  queue::mode(seed);
}
CONTROL void rk_sim_fail_alloc(i64 n) {
  Lock lock;
  fail_alloc = n;
}
CONTROL void rk_sim_fail_launch(i64 n, int code) {
  Lock lock;
  fail_launch = n;
  fail_launch_code = code;
}
CONTROL void rk_sim_fail_event(i64 n) {
  Lock lock;
  fail_event = n;
}
CONTROL void rk_sim_device(int count, int major, int minor, u64 total) {
  Lock lock;
  device = {count, major, minor, total};
  initialized = false;
}
CONTROL u64 rk_sim_live(u32 kind) {
  Lock lock;
  u64 host = 0;
  for (const auto& m : memory) host += m.second.host;
  const u64 live[] = {
      memory.size() - host, host,           streams.size() - streams.count(nullptr),
      events.size(),        modules.size(), (u64)primary_retained + contexts.size() - contexts.count(&primary),
      graphs.size()};
  return kind < 7 ? live[kind] : 0;
}
CONTROL u64 rk_sim_count(u32 kind) {
  Lock lock;
  return kind < COUNTED ? counts[kind] : 0;
}
