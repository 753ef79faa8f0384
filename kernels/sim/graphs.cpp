// graphs.cpp - recording work into graphs and launching those. Allocations, copies of pageable memory and events are recorded, as drivers
// do; what a driver may record and this does not (waits for events) is refused, as what no driver records is.
#include "driver.hpp"

using namespace driver;

API cuStreamIsCapturing(void* stream, int* status) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  if (!s) return INVALID_HANDLE;
  *status = !(*s)->recording ? 0 : (*s)->recording->broken ? 2 : 1;
  return SUCCESS;
}
API cuThreadExchangeStreamCaptureMode(int* mode) {
  Lock lock;
  if (!in_context()) return INVALID_CONTEXT;  // the strictest that a driver may be
  std::swap(*mode, capture_mode);
  return SUCCESS;
}
API cuStreamBeginCapture_v2(void* stream, int mode) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  if (!s) return INVALID_HANDLE;
  if (*s == *find_stream(nullptr)) return CAPTURE_UNSUPPORTED;
  if ((*s)->recording || recording) return ILLEGAL_STATE;
  (*s)->recording = std::make_shared<queue::Recording>();
  (*s)->recording->mode = mode;
  recording = *s;
  return SUCCESS;
}
API cuStreamEndCapture(void* stream, void** graph) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  *graph = nullptr;
  if (!s) return INVALID_HANDLE;
  if (recording != *s) return ILLEGAL_STATE;
  const std::shared_ptr<queue::Recording> recorded = std::move((*s)->recording);
  recording.reset();
  if (recorded->broken) return CAPTURE_INVALIDATED;
  *graph = new Graph{std::move(recorded->work)};
  graphs.insert(*graph);
  return SUCCESS;
}
API cuGraphInstantiateWithFlags(void** made, void* graph, u64) {
  Lock lock;
  if (!graphs.count(graph)) return INVALID_HANDLE;
  *made = new Graph(*static_cast<Graph*>(graph));
  graphs.insert(*made);
  return SUCCESS;
}
API cuGraphLaunch(void* made, void* stream) {
  Lock lock;
  const queue::StreamPtr* s = find_stream(stream);
  if (!s || !graphs.count(made)) return INVALID_HANDLE;
  if (breaks_recording(s)) return CAPTURE_UNSUPPORTED;
  for (const auto& work : static_cast<Graph*>(made)->work) queue::submit(*s, work);
  return SUCCESS;
}
API cuGraphDestroy(void* graph) {
  Lock lock;
  if (!graphs.erase(graph)) return INVALID_HANDLE;
  delete static_cast<Graph*>(graph);
  return SUCCESS;
}
API cuGraphExecDestroy(void* made) { return cuGraphDestroy(made); }
