// Runs a plan over one model state: forward, loss, backward. Allocates at construction only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/core/arena.h"
#include "engine/core/thread_pool.h"
#include "engine/graph/batch_view.h"
#include "engine/graph/model_state.h"
#include "engine/graph/plan.h"
#include "engine/ops/loss/softmax_cross_entropy.h"
#include "engine/ops/optim_step/step_numbers.h"

namespace engine {

// Where a step on a CUDA device finds its numbers and leaves its results; all in device memory, all
// outlive the step.
struct DeviceStep {
  const StepNumbers* numbers = nullptr;
  const StepControl* control = nullptr;  // training only
  ops::BatchTotals* last = nullptr;      // becomes the sums of this forward; null: not wanted
  bool continues = false;                // a further micro-batch: `last` is added to
  ops::BatchTotals* total = nullptr;     // they are added to; null: not wanted
};

class Executor {
 public:
  // REQUIRES: the state is of the plan's graph and dtype; `threads` has the plan's number of
  // threads. Throws ModelError unless the graph has two inputs: first the samples (f32) or tokens
  // (i32), then the labels (i32) or targets (f32). `plan`, `state` and `threads` outlive the
  // executor. `seed` is the run's, for dropout.
  Executor(const Plan& plan, ModelState& state, ThreadPool& threads, std::uint64_t seed);
  // On the CUDA device of `context`, which is also the state's: it brings device, stream, products
  // and fault. Calls only put work on the stream. Batches lie in device memory and have
  // been checked by check(); results are left where set_device_step() says, and forward() returns
  // nothing of them.
  Executor(const Plan& plan, ModelState& state, const KernelContext& context, std::uint64_t seed);
  ~Executor();

  void set_device_step(const DeviceStep& step);
  // On a CUDA device: from now on batches carry pixels and draws, and each forward() makes the
  // model's input of them, with this table (ops::prepare_images), in device memory that outlives
  // the executor. Where the plan has no place of its own for the input, that is `samples` of the
  // batch. Throws ModelError unless the model reads images of the table's channels.
  void set_image_table(TensorView table);
  // What forward() would refuse of a batch in host memory. Throws InputError.
  void check(const BatchView& batch, bool training) const;

  // From now on layers with statistics over all replicas reach them through this, which outlives
  // the executor; null: none.
  void set_replicas(ReplicaExchange* replicas);

  // From now on a batch counts for `weight`, from 0 to 1, in running statistics, whatever the
  // layers' momentum; below 0: for their momentum.
  void set_statistics_weight(double weight);

  // Inference mode uses running statistics, draws no dropout and changes no state.
  // Training mode requires a training plan and updates running statistics.
  // `batch` must stay alive until backward is done. Sample ids may be left out in inference mode.
  // Throws InputError, before anything has changed, for a label out of range and for a batch of the
  // wrong size.
  BatchResult forward(const BatchView& batch, bool training);

  // Gradients of (scale * sum of per-sample losses) into the state's gradient buffer. After each
  // step of backward that finishes parameters, ready(elements) says how much of the front of the
  // gradient buffer is final; the last call has elements == gradients.size(). `ready` may be empty.
  // A batch of 0 samples gives zero gradients (kOverwrite).
  void backward(double scale, Write parameter_write,
                const std::function<void(std::int64_t)>& ready);

  // [count, classes], valid until the next forward; after a forward in training mode only where the
  // plan watches them (PlanOptions::watched), as the loss may have replaced them.
  TensorView logits() const;
  // [count, ...] of the plan's watched node, valid as long. Throws ModelError where the plan
  // watches none, or one that only passes on what the caller gave.
  TensorView watched() const;
  const Plan& plan() const;

 private:
  struct Impl;  // views of every step, prepared once
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine
