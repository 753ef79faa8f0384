// queue.hpp - streams and events of the stand-in driver. At once: work runs when it is given. Lazily: every stream keeps its work, and a
// random stream that is not waiting for an event runs its next piece whenever the host waits for something, and now and then besides. So
// work of two streams that no event orders runs in an order that changes with the seed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace queue {

struct Event {
  uint64_t recorded = 0;     // number of the last record given
  uint64_t done = 0;         // number of the last record run
  double milliseconds = 0;   // when
};
typedef std::shared_ptr<Event> EventPtr;

// Work that was recorded and not done. Broken: it was given what cannot be recorded.
struct Recording {
  std::vector<std::function<void()>> work;
  bool broken = false;
  int mode = 0;
};

struct Stream {
  struct Task { std::function<void()> run; EventPtr event; uint64_t number; };   // waits for that record of `event`, if there is one
  std::deque<Task> tasks;
  std::shared_ptr<Recording> recording;   // where there is one, work goes there
};
typedef std::shared_ptr<Stream> StreamPtr;

// 0: at once. LATEST: only when the host waits. Any other seed: lazily, in the order drawn from it. What waits is run first.
constexpr uint32_t LATEST = 0xffffffff;
void mode(uint32_t seed);
StreamPtr create();
// Its work is still done.
void destroy(const StreamPtr& stream);
void submit(const StreamPtr& stream, std::function<void()> work);
void record(const StreamPtr& stream, const EventPtr& event);
void wait(const StreamPtr& stream, const EventPtr& event);
// Run what waits until the stream, the event, everything is done. Streams that wait for each other end the program.
void finish(const StreamPtr& stream);
void finish(const EventPtr& event);
void finish_all();
// Whether it is; where it is not, something else may run.
bool finished(const StreamPtr& stream);
bool finished(const EventPtr& event);
// Drops all streams and their work.
void reset();

}  // namespace queue
