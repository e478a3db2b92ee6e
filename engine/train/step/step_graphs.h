// Captures the work of steps on a CUDA device as graphs, one for each slot of the batches and each
// shape of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/averaging/math/exchange_gate.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/core/cuda_host.h"

namespace engine {

// A micro-batch of a step. The same on all ranks, so that they capture alike.
struct StepShape {
  std::vector<std::int64_t> counts;  // samples of each rank
  bool first = true, last = true;    // of the step's micro-batches
  std::int64_t variant = 0;          // of the sum of gradients (DeviceGradientSum::variant())

  bool operator<(const StepShape& other) const {
    return std::tie(counts, first, last, variant) <
           std::tie(other.counts, other.first, other.last, other.variant);
  }
};

// Times on the device within a step; each launch of a captured step sets them.
struct SumClock {
  cuda::Event computed{/*timing=*/true};  // the end of backward
  cuda::Event summed{/*timing=*/true};    // the end of the sums over ranks, before the update

  double waited_seconds() const { return summed.seconds_since(computed); }
};

class StepGraphs {
 public:
  // `sum`: its calls are part of the graphs; null: no other rank takes part. `obstacle`: why
  // nothing is captured, "" if it can be. `before_capture` waits for work of this rank on its
  // device that other ranks take part in.
  StepGraphs(int slots, void* stream, DeviceGradientSum* sum, std::string obstacle,
             std::function<void()> before_capture);

  bool usable() const { return obstacle_.empty(); }
  // "captured from step 3 on", then "captured, 212 nodes" or "captured, up to 212 nodes in 3
  // shapes"; or why not.
  std::string text() const;
  bool has_failed() const { return has_failed_; }

  // Runs issue(), which enqueues the work of `shape` for the batch in `slot`: directly in the first
  // steps of a shape, then once within a capture, and from then on launches the graph instead.
  // Returns true if it captured in this call, and thus waited for other ranks. NCCL requires that a
  // call is captured, and a graph with it launched, on all ranks or on none: they decide alike,
  // because shapes have the samples of all ranks, and ranks stage alike.
  template <class Issue>
  bool run(int slot, const StepShape& shape, const Issue& issue) {
    if (!usable()) return issue(), false;
    Captured& captured = find(shape);
    cuda::StepGraph& graph = captured.graphs[static_cast<std::size_t>(slot)];
    const bool captures =
        !graph && captured.straight >= kStepsBeforeCapture && may_capture(captured);
    if (captures) capture(captured, graph, issue);
    if (graph) return graph.launch(stream_), captures;
    ++captured.straight;
    issue();
    return captures;
  }

 private:
  // Counted for each shape: a kernel's first launch loads it, which is not allowed during capture,
  // and the kernels of a step depend on the size of its batch.
  static constexpr int kStepsBeforeCapture = 2;

  struct Captured {
    std::vector<cuda::StepGraph> graphs;  // by slot
    std::int64_t straight = 0;            // times that the work was issued directly
    std::int64_t last_run = 0;            // runs_ when it was used last
    bool has_graph() const;
  };

  Captured& find(const StepShape& shape);
  bool may_capture(const Captured& captured) const;
  const Captured* unused_longest() const;
  void make_room(const Captured& captured);
  void adopt_graph(cuda::StepGraph& graph, cuda::StepGraph made, const std::string& failure);
  std::string drop(const std::string& failure);

  // All ranks launch their graphs, or none does, since a graph contains a call of every other
  // rank's. They also synchronize because creating a graph allocates device memory, for which a
  // driver may wait until all devices of the process are idle: forever, if one of them already ran
  // the graph of another rank, which waits for this one's.
  template <class Issue>
  void capture(Captured& captured, cuda::StepGraph& graph, const Issue& issue) {
    cuda::StepGraph made;
    std::string failure;
    before_capture_();
    // Creating a graph may wait for earlier steps, and thus for a dead rank, without a deadline:
    // they end here first.
    if (sum_ != nullptr) sum_->wait(stream_);
    make_room(captured);
    cuda::StepGraph::begin_capture(stream_);
    try {
      issue();
      const ExchangeGate::Creation creation(ExchangeGate::of_process());
      made = cuda::StepGraph::end_capture(stream_);
    } catch (const cuda::CudaError& failed) {
      failure = drop(failed.what());
    } catch (...) {
      cuda::StepGraph::drop_capture(stream_);
      throw;
    }
    adopt_graph(graph, std::move(made), failure);
  }

  const std::size_t slots_;
  void* const stream_;
  DeviceGradientSum* const sum_;
  std::string obstacle_;
  const std::function<void()> before_capture_;
  bool has_failed_ = false;
  std::int64_t runs_ = 0;
  std::map<StepShape, Captured> captured_;
};

}  // namespace engine
