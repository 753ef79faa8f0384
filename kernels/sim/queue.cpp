#include "queue.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace queue {
namespace {

uint32_t seed_ = 0;
uint64_t random_ = 0;
std::vector<StreamPtr> streams;      // every stream that may have work

uint32_t draw(uint32_t below) {
  random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<uint32_t>((random_ >> 33) % below);
}

bool runnable(const Stream& s) {
  if (s.tasks.empty()) return false;
  const Stream::Task& task = s.tasks.front();
  return !task.event || task.event->done >= task.number;
}

// Runs the next task of some stream; false where none can run.
bool step() {
  std::vector<StreamPtr> ready;
  for (const StreamPtr& s : streams)
    if (runnable(*s)) ready.push_back(s);
  if (ready.empty()) return false;
  const StreamPtr chosen = ready[draw(static_cast<uint32_t>(ready.size()))];
  const Stream::Task task = chosen->tasks.front();
  chosen->tasks.pop_front();
  if (task.run) task.run();
  return true;
}

template <class Done> void run_until(Done done) {
  while (!done()) {
    if (!step()) {
      fprintf(stderr, "simulator: streams wait for events that nothing will record\n");
      abort();
    }
  }
}

void push(const StreamPtr& stream, Stream::Task task) {
  stream->tasks.push_back(std::move(task));
  if (seed_ == 0) return finish(stream);
  if (seed_ == LATEST) return;
  while (draw(4) == 0 && step()) {
  }
}

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void mode(uint32_t seed) {
  finish_all();
  seed_ = seed;
  random_ = 0x9e3779b97f4a7c15ull * (seed + 1);
}

StreamPtr create() {
  streams.push_back(std::make_shared<Stream>());
  return streams.back();
}

void destroy(const StreamPtr& stream) {
  submit(stream, [stream] {
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i] == stream) {
        streams.erase(streams.begin() + static_cast<long>(i));
        return;
      }
  });
}

void submit(const StreamPtr& stream, std::function<void()> work) {
  if (stream->recording) stream->recording->work.push_back(std::move(work));
  else push(stream, {std::move(work), nullptr, 0});
}

void record(const StreamPtr& stream, const EventPtr& event) {
  const uint64_t number = ++event->recorded;
  submit(stream, [event, number] {
    event->done = number;
    event->milliseconds = now();
  });
}

void wait(const StreamPtr& stream, const EventPtr& event) { push(stream, {nullptr, event, event->recorded}); }

void finish(const StreamPtr& stream) {
  run_until([&] { return stream->tasks.empty(); });
}
void finish(const EventPtr& event) {
  run_until([&] { return event->done >= event->recorded; });
}
void finish_all() {
  const std::vector<StreamPtr> all = streams;
  for (const StreamPtr& s : all) finish(s);
}

bool finished(const StreamPtr& stream) {
  if (stream->tasks.empty()) return true;
  if (seed_ != LATEST) step();
  return false;
}
bool finished(const EventPtr& event) {
  if (event->done >= event->recorded) return true;
  if (seed_ != LATEST) step();
  return false;
}

void reset() {
  for (const StreamPtr& s : streams) s->tasks.clear();
  streams.clear();
  seed_ = 0;
}

}  // namespace queue
