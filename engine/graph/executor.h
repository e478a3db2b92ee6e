// Runs a plan over one model state: forward, loss, backward. Allocates only at construction.
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

// The inputs and outputs of a step on a CUDA device; all are in device memory and must outlive the
// step.
struct DeviceStep {
  const StepNumbers* numbers = nullptr;
  const StepControl* control = nullptr;  // training only
  ops::BatchTotals* last = nullptr;      // receives the sums of this forward pass; null: not needed
  bool continues = false;                // a further micro-batch: its sums are added to `last`
  ops::BatchTotals* total = nullptr;     // the sums are added to it; null: not needed
};

// The next positions of texts, for a plan with PlanOptions::positions.
struct TextExtension {
  // [texts, positions]; for an Executor in the memory of its device.
  std::span<const std::int32_t> tokens;
  std::int64_t positions = 1;             // of each text
  std::int64_t first_text = 0;            // the texts have the numbers from here on
  std::span<const std::int64_t> earlier;  // [texts]: the positions of each text before these
  // False: the logits are not needed, and what they had is not kept. Saves the output layer.
  bool logits = true;
};

class Executor {
 public:
  // REQUIRES: the state has the plan's graph and dtype; `threads` has the plan's number of threads.
  // Throws ModelError unless the graph has two inputs: first the samples (f32) or tokens (i32),
  // then the labels (i32) or targets (f32). `plan`, `state` and `threads` must outlive the
  // executor. `seed` is the run's, for dropout.
  Executor(const Plan& plan, ModelState& state, ThreadPool& threads, std::uint64_t seed);
  // Runs on the CUDA device of `context`, which must also be the state's; the context provides
  // device, stream, products and fault. Calls only enqueue work on the stream. Batches must be in
  // device memory and must have passed check(); results are written to the memory given by
  // set_device_step(), and forward() does not return any.
  Executor(const Plan& plan, ModelState& state, const KernelContext& context, std::uint64_t seed);
  ~Executor();

  void set_device_step(const DeviceStep& step);
  // On a CUDA device: from now on batches contain pixels and draws, and each forward() prepares the
  // model's input from them with this table (ops::prepare_images), which is in device memory and
  // must outlive the executor. If the plan has no memory for the input, it is prepared in `samples`
  // of the batch. Throws ModelError unless the model reads images with the table's number of
  // channels.
  void set_image_table(TensorView table);
  // Rejects a batch in host memory that forward() would reject. Throws InputError.
  void check(const BatchView& batch, bool training) const;

  // Sets the exchange for layers with statistics over all replicas, which must outlive the
  // executor; null: none.
  void set_replicas(ReplicaExchange* replicas);

  // Sets the weight, from 0 to 1, of a batch in running statistics, in place of the layers'
  // momentum; negative: the layers' momentum is used.
  void set_statistics_weight(double weight);

  // Inference mode uses running statistics, draws no dropout and does not change the state.
  // Training mode requires a training plan and updates running statistics.
  // `batch` must stay alive until backward is done. Sample ids may be omitted in inference mode.
  // Throws InputError, before any change, for a label out of range and for a batch of the wrong
  // size.
  BatchResult forward(const BatchView& batch, bool training);

  // For a plan with PlanOptions::positions: allocates what its layers keep of `texts` texts of up
  // to the model's context, and on the CPU a packed copy of the weights, which the first extension
  // makes: the state's parameters must not change afterwards.
  void keep_texts(std::int64_t texts);
  // Computes the logits [texts, positions, classes] of these positions from what is kept of the
  // earlier ones, which calls before must have computed, in order and from the first. Throws
  // InputError for a token out of range; on a CUDA device it is reported to the context's fault.
  // REQUIRES: texts * positions is at most max_batch * positions of the plan; the texts are kept,
  // and not longer than the context.
  void extend(const TextExtension& extension);

  // Writes the gradients of (scale * sum of per-sample losses) to the state's gradient buffer.
  // After each step of backward that completes parameters, calls ready(elements) with the length of
  // the final prefix of the gradient buffer; the last call has elements == gradients.size().
  // `ready` may be empty. Runs forward again where the plan says so. A batch of 0 samples gives
  // zero gradients (kOverwrite).
  void backward(double scale, Write parameter_write,
                const std::function<void(std::int64_t)>& ready);

  // [count, classes], valid until the next forward; after a forward in training mode only if the
  // plan watches them (PlanOptions::watched), because the loss may have overwritten them.
  TensorView logits() const;
  // [count, ...] of the plan's watched node, with the same lifetime. Throws ModelError if the plan
  // watches no node, or one whose memory is the caller's.
  TensorView watched() const;
  const Plan& plan() const;

 private:
  struct Impl;  // the views of every step, made once
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine
