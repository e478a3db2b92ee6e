// Runs an executor on a CUDA device, and transfers batches to it.
//
// A batch is copied into one of a few slots of pinned memory, and from there by a separate stream
// to the corresponding slot on the device, while earlier batches are computed. Images may be
// transferred as bytes, a quarter of the size. A slot's addresses never change, so a step that
// reads from a slot can be captured as a graph, once for each slot. If the device has all samples,
// a batch is gathered into its slot there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/core/cuda.h"
#include "engine/graph/executor.h"
#include "engine/graph/resident_samples.h"

namespace engine {

struct DeviceExecutorOptions {
  std::uint64_t seed = 0;
  int slots = 2;             // number of batches in flight
  bool pinned = true;        // --pin-memory
  bool non_blocking = true;  // --non-blocking: the caller does not wait for a batch's copy
  // The table for images that are transferred as bytes and prepared on the device, [channels,
  // ops::kImageTableRow]. Empty: samples are transferred as numbers.
  std::vector<float> image_table = {};
  std::int64_t texts = 0;  // that are kept, for a plan that extends texts: Executor::keep_texts()
  // All samples, if batches have only their ids (BatchView::resident); they outlive the
  // executor. Null: batches contain their samples.
  const ResidentSamples* resident = nullptr;
  // Waits until a stream is idle. Empty: waits without a deadline; must have a deadline if other
  // ranks take part in the stream's work.
  std::function<void(void* stream)> wait = {};
};

class DeviceExecutor {
 public:
  // `context` has the device, its compute stream and products; the executor owns its scratch. Plan
  // and state (in memory of that device) must outlive the executor. All memory is allocated here.
  // REQUIRES: the calling thread uses that device, here and in every call.
  DeviceExecutor(const Plan& plan, ModelState& state, const KernelContext& context,
                 const DeviceExecutorOptions& options);
  ~DeviceExecutor();

  void set_replicas(ReplicaExchange* replicas);
  // Sets the control of the following steps, which is in device memory.
  void set_control(const StepControl* control);

  // Copies a batch in host memory and the numbers of its step to the device; waits only until a
  // slot is free. The stream of `context` does not read them before the copy is complete. Returns
  // the slot, which must be returned by release(). Throws InputError.
  int stage(const BatchView& batch, const StepNumbers& numbers, bool training);
  // Releases the slot after all work that reads it is on the compute stream.
  void release(int slot);
  const StepNumbers* numbers(int slot) const;  // in device memory
  // The sums of the last step or, without `continues`, of its last micro-batch; in device memory.
  const ops::BatchTotals* last() const;

  // Enqueue work on the compute stream for the samples that were staged last in the slot.
  // `continues`: this is a further micro-batch of a step, and its results are added to those of the
  // previous ones. `statistics_weight`, if not negative: see Executor::set_statistics_weight().
  void forward(int slot, bool training, bool continues = false, double statistics_weight = -1);
  void backward(int slot, Write parameter_write, const std::function<void(std::int64_t)>& ready);

  // Enqueues Executor::extend() with tokens in host memory, which are sent as batches are.
  void extend(const TextExtension& extension);

  // Waits for all issued work. Throws InputError for a token or label that a kernel found out of
  // range.
  StepResults results();
  // Runs a batch in inference mode from staging to results.
  BatchResult infer(const BatchView& batch);

  int slots() const;
  const Plan& plan() const;
  TensorView logits() const;   // in device memory
  TensorView watched() const;  // in device memory

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine
