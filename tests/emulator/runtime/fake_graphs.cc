// Captures and graphs of CUDA's runtime on the CPU.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/emulator/runtime/fake_machine.h"
#include "tests/emulator/runtime/fake_settings.h"

namespace fake {
namespace {

// The nodes of a graph in one launch of it. A node that waits for another rank holds up only those
// that come after it, as on the streams to which a device assigns the branches of a graph.
class Replay {
 public:
  Replay(const EmulatedGraph& graph, std::vector<std::size_t> order)
      : work_(graph.work),
        after_(graph.after),
        order_(std::move(order)),
        done_(work_.size(), false) {}

  // Returns true if one more node has come to its end.
  bool run_one() {
    while (first_ < order_.size() && done_[order_[first_]]) ++first_;
    for (std::size_t place = first_; place < order_.size(); ++place) {
      const std::size_t node = order_[place];
      if (done_[node] || !is_ready(node) || !work_[node]()) continue;
      return done_[node] = true;
    }
    return false;
  }

 private:
  bool is_ready(std::size_t node) const {
    return std::ranges::all_of(after_[node], [this](std::size_t before) { return done_[before]; });
  }

  std::vector<Work> work_;
  const GraphEdges after_;
  const std::vector<std::size_t> order_;
  std::vector<bool> done_;
  std::size_t first_ = 0;  // in the order: all nodes before it are done
};

}  // namespace
}  // namespace fake

using namespace fake;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (stream == nullptr || s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  s.capture = std::make_shared<EmulatedGraph>();
  s.capture->streams.push_back(&s);
  s.ends.clear();
  s.captures_itself = true;
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (!s.capture || !s.captures_itself) return fail(cudaErrorInvalidValue);
  const std::shared_ptr<EmulatedGraph> made = s.capture;
  for (EmulatedStream* each : made->streams) each->capture = nullptr;
  s.captures_itself = false;
  made->ended = true;
  --captures;
  if (!made->valid) return fail(cudaErrorStreamCaptureInvalidated);
  if (capture_mode(s.device) == "off") return fail(cudaErrorStreamCaptureUnsupported);
  if (!is_joined(made->after, s.ends)) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = new EmulatedGraph;
  (*graph)->work = made->work;
  (*graph)->after = made->after;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *status = stream_of(stream).capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  // It takes memory of the device, and to map that a driver may wait until this and other devices
  // of the process are idle.
  synchronize_all_devices();
  return *executable = new EmulatedGraph(*graph), cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void*, std::size_t* count) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return *count = graph->work.size(), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  const auto replay =
      std::make_shared<Replay>(*executable, replay_order(executable->after, executable->replays++));
  for (std::size_t node = 0; node < executable->work.size(); ++node)
    issue_work(stream_of(stream), [replay] { return replay->run_one(); });
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return delete graph, cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return delete executable, cudaSuccess;
}

}  // extern "C"
