// An executor on a CUDA device, and the way of batches to it.
//
// A batch is copied into one of a few slots of pinned memory and from there by a stream of its own
// into the slot's twin on the device, while earlier batches are computed. Images may come as bytes:
// a quarter of the way's load. A slot's addresses never change, so a step that reads from one can
// be captured as a graph, once for each slot.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/core/cuda.h"
#include "engine/graph/executor.h"

namespace engine {

struct DeviceExecutorOptions {
  std::uint64_t seed = 0;
  int slots = 2;             // batches under way at once
  bool pinned = true;        // --pin-memory
  bool non_blocking = true;  // --non-blocking: the caller does not wait for a batch's copy
  // Images come as bytes and are prepared on the device: the table for it, [channels,
  // ops::kImageTableRow]. Empty: samples come as numbers.
  std::vector<float> image_table = {};
  // Waits until a stream is idle. Empty: as long as it takes; where other ranks take part in the
  // stream's work, with a deadline.
  std::function<void(void* stream)> wait = {};
};

class DeviceExecutor {
 public:
  // `context`: the device, its compute stream, products; scratch is the executor's own. Plan and
  // state (in memory of that device) outlive the executor. Allocates here only. REQUIRES: the
  // calling thread uses that device, here and in every call.
  DeviceExecutor(const Plan& plan, ModelState& state, const KernelContext& context,
                 const DeviceExecutorOptions& options);
  ~DeviceExecutor();

  void set_replicas(ReplicaExchange* replicas);
  // From now on the steps' control; in device memory.
  void set_control(const StepControl* control);

  // Copies a batch in host memory and the numbers of its step to the device; waits only until a
  // slot is free. The stream of `context` will not read them before they are there. Returns the
  // slot, to be given back by release(). Throws InputError.
  int stage(const BatchView& batch, const StepNumbers& numbers, bool training);
  // The compute stream has been given everything that reads the slot.
  void release(int slot);
  const StepNumbers* numbers(int slot) const;  // device memory

  // Put work on the compute stream. Samples in the slot: what was staged last.
  // `continues`: a further micro-batch of a step, whose results are added to those of the ones
  // before.
  void forward(int slot, bool training, bool continues = false);
  void backward(int slot, Write parameter_write, const std::function<void(std::int64_t)>& ready);

  // Waits for everything issued so far. Throws InputError for a token or label that a kernel found
  // out of range.
  StepResults results();
  // A batch in inference mode, start to end.
  BatchResult infer(const BatchView& batch);

  std::int64_t staged_count(int slot) const;  // samples
  int slots() const;
  const Plan& plan() const;
  TensorView logits() const;   // device memory
  TensorView watched() const;  // likewise

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine
