// Streams and events of CUDA's runtime on the CPU, and the launches of kernels.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulator/runtime/fake_machine.h"
#include "tests/emulator/runtime/fake_settings.h"
#include "tests/emulator/simt/simt.h"

namespace fake {
namespace {

constexpr auto kPause = std::chrono::microseconds(20);
constexpr int kHighestPriority = -5;  // as devices of today have it

[[noreturn]] void device_failure(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::fflush(stderr);
  std::abort();
}

// Whether the stream's next piece of work came to its end.
bool run_one(EmulatedStream& stream) {
  Work* work =
      nullptr;  // stays where it is: a deque's elements do not move when others are added behind
  {
    const std::lock_guard lock(stream.queue_mutex);
    if (stream.queue.empty()) return false;  // another thread has done it meanwhile
    work = &stream.queue.front();
  }
  try {
    if (!(*work)()) return false;
  } catch (const std::exception& failed) {
    device_failure(failed.what());
  }
  const std::lock_guard lock(stream.queue_mutex);
  stream.queue.pop_front();
  ++stream.done;
  return true;
}

// As far as it goes without waiting; true: there.
bool try_until(EmulatedStream& stream, std::uint64_t position) {
  // Where another thread drives the stream, that one gets it further: waiting for it here, while a
  // stream of ours is held, could be waiting in a ring.
  const std::unique_lock lock(stream.mutex, std::try_to_lock);
  while (lock && stream.done < position)
    if (!run_one(stream)) return false;
  return stream.done >= position;
}

// A device continues its other streams while one of them waits, e.g. for another rank.
void advance_others(const EmulatedStream& waiting) {
  std::vector<EmulatedStream*> others;
  {
    const std::lock_guard lock(machine().streams_mutex);
    for (EmulatedStream* stream : machine().streams)
      if (stream != &waiting && stream->device == waiting.device && stream->done < stream->issued)
        others.push_back(stream);
  }
  for (EmulatedStream* stream : others) try_until(*stream, stream->done + 1);
}

void run_until(EmulatedStream& stream, std::uint64_t position) {
  while (!try_until(stream, position)) {
    advance_others(stream);
    std::this_thread::sleep_for(kPause);
  }
}

// One piece further, where that needs no waiting.
void advance(EmulatedStream& stream) {
  bool moved = false;
  {
    const WorkScope scope;
    moved = try_until(stream, stream.done + 1);
    if (!moved) advance_others(stream);
  }
  if (!moved) std::this_thread::sleep_for(kPause);  // others need the core for what is waited for
}

void add_ends(std::vector<std::size_t>& ends, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more)
    if (std::ranges::find(ends, node) == ends.end()) ends.push_back(node);
}

cudaError_t make_stream(cudaStream_t* stream, int priority) {
  *stream = new EmulatedStream;
  (*stream)->device = current_device;
  (*stream)->priority = priority;
  const std::lock_guard lock(machine().streams_mutex);
  machine().streams.push_back(*stream);
  return cudaSuccess;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void drain(EmulatedStream& stream, std::uint64_t position) {
  const WorkScope scope;
  run_until(stream, position);
}

EmulatedStream& default_stream() {
  static thread_local std::map<int, EmulatedStream*> of_device;
  EmulatedStream*& stream = of_device[current_device];
  if (stream == nullptr) {
    stream = new EmulatedStream;
    stream->device = current_device;
    const std::lock_guard lock(machine().streams_mutex);
    machine().streams.push_back(stream);
  }
  return *stream;
}

EmulatedStream& stream_of(cudaStream_t stream) {
  return stream == nullptr ? default_stream() : *stream;
}

void issue_work(EmulatedStream& stream, Work work) {
  if (stream.capture) {
    EmulatedGraph& graph = *stream.capture;
    graph.work.push_back(std::move(work));
    graph.after.push_back(std::move(stream.ends));
    stream.ends = {graph.work.size() - 1};
    return;
  }
  const std::lock_guard lock(stream.queue_mutex);
  stream.queue.push_back(std::move(work));
  ++stream.issued;
}

void issue(EmulatedStream& stream, std::function<void()> work) {
  issue_work(stream, [work = std::move(work)] {
    open_memory();
    return work(), true;
  });
}

namespace {
void synchronize(const std::function<bool(const EmulatedStream&)>& chosen) {
  std::vector<EmulatedStream*> streams;
  {
    const std::lock_guard lock(machine().streams_mutex);
    for (EmulatedStream* stream : machine().streams)
      if (chosen(*stream)) streams.push_back(stream);
  }
  for (EmulatedStream* stream : streams) drain(*stream, stream->issued);
}
}  // namespace

void synchronize_current_device() {
  synchronize([](const EmulatedStream& stream) { return stream.device == current_device; });
}
void synchronize_all_devices() {
  synchronize([](const EmulatedStream&) { return true; });
}

}  // namespace fake

using namespace fake;

namespace simt {
void enqueue(void* stream, std::function<void()> work) {
  if (is_chosen("launch")) machine().lost = cudaErrorLaunchFailure;
  if (machine().lost != cudaSuccess) return;
  issue(stream_of(static_cast<cudaStream_t>(stream)), std::move(work));
}
}  // namespace simt

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *lowest = 0;
  *highest = kHighestPriority;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return make_stream(stream, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return make_stream(stream, std::clamp(priority, kHighestPriority, 0));
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return *priority = stream_of(stream).priority, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  drain(*stream, stream->issued);
  const std::lock_guard lock(machine().streams_mutex);
  std::erase(machine().streams, stream);
  machine().ended.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  ++machine().polling_waits;
  drain(s, s.issued);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  if (s.done == s.issued) return cudaSuccess;
  advance(s);
  return s.done == s.issued ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (event->stream == nullptr) return cudaSuccess;
  if (event->capture) {  // the waiting stream joins the capture
    if (event->capture->ended) return fail(cudaErrorCapturedEvent);
    if (s.capture && s.capture != event->capture) return fail(cudaErrorStreamCaptureInvalidated);
    if (!s.capture) {
      s.capture = event->capture;
      s.capture->streams.push_back(&s);
      s.ends.clear();
    }
    add_ends(s.ends, event->ends);
    return cudaSuccess;
  }
  if (s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  issue_work(s,
             [on = event->stream, position = event->position] { return try_until(*on, position); });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  issue(stream_of(stream), [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *event = new EmulatedEvent;
  (*event)->flags = flags;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return delete event, cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  event->capture = s.capture;
  event->ends = s.ends;
  event->stream = &s;
  if (!s.capture) {
    issue(s, [seconds = event->seconds] { *seconds = now(); });
    event->position = s.issued;
  }
  return cudaSuccess;
}
// An external record is a node of the graph, and each replay sets the event's time.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (!s.capture) return fail(cudaErrorInvalidValue);
  issue(s, [seconds = event->seconds] { *seconds = now(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (event->stream == nullptr) return cudaSuccess;
  if (event->capture) return fail(cudaErrorStreamCaptureUnsupported);
  if (event->stream->done >= event->position) return cudaSuccess;
  advance(*event->stream);
  return event->stream->done >= event->position ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (event->stream == nullptr) return cudaSuccess;
  if (event->capture) return fail(cudaErrorStreamCaptureUnsupported);
  if ((event->flags & cudaEventBlockingSync) == 0) ++machine().polling_waits;
  drain(*event->stream, event->position);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *milliseconds = static_cast<float>((*end->seconds - *start->seconds) * 1e3);
  return cudaSuccess;
}

}  // extern "C"
