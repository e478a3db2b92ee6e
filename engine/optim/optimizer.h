// Optimizers over flat parameter memory. Each is described by its descriptor (optimizer_spec.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/optim_step/step_numbers.h"
#include "engine/optim/optimizer_spec.h"

namespace engine {

class Optimizer {
 public:
  struct State {            // memory that a checkpoint must store
    std::string_view name;  // "momentum"
    StateRole role;
    FlatBuffer* buffer;  // has the parameters' slots, or some of them; if the optimizer updates a
                         // shard, only that shard of these slots' elements
    const std::vector<std::size_t>* slots = nullptr;  // indices of these slots; null: all
  };

  // A step on a CUDA device, where all of this memory is.
  struct DeviceStep {
    const StepNumbers* numbers;
    StepControl* control;
    const FlatBuffer& gradients;
    FlatBuffer& values;
    // Receives the values rounded to `half` (bf16 or f16), in their order; null: there is no copy.
    void* half_copy = nullptr;
    DType half = DType::kBF16;
    // Returns this part of the copy, or an empty view.
    TensorView halves(std::int64_t first, std::int64_t count) const;
  };

  explicit Optimizer(const OptimizerSpec& spec) : spec_(spec) {}
  virtual ~Optimizer() = default;
  const OptimizerSpec& spec() const { return spec_; }
  // Describes which parameters it updates in which way, for the start message; "" if all are
  // treated alike.
  virtual std::string text() const { return ""; }
  // Makes one update of all values from gradient_scale * gradients. REQUIRES: the buffers have the
  // slots given at construction.
  virtual void step(KernelContext& context, double lr, double gradient_scale,
                    const FlatBuffer& gradients, FlatBuffer& values) = 0;
  // The same on the CUDA device of the buffers, after ops::settle_step(): rate, scale and count
  // come from the structs in device memory, and a skipped step changes nothing. Only enqueues work
  // on the context's stream, unless ranks exchange the values through host memory. REQUIRES:
  // spec().on_cuda.
  virtual void step_on_device(KernelContext& context, const DeviceStep& step) = 0;
  virtual std::vector<State> state() = 0;  // on the device of the values given at construction

  // The number of updates; part of a checkpoint. step() increments it; step_on_device() instead
  // updates StepControl::applied_steps, which readers of the control copy here, and which is
  // initialized from here when a run starts.
  std::int64_t step_count() const { return step_count_; }
  void set_step_count(std::int64_t count) { step_count_ = count; }

 protected:
  std::int64_t step_count_ = 0;

 private:
  const OptimizerSpec& spec_;
};

// Returns an optimizer of all `values`, with the default settings but for those in `changed`.
// REQUIRES: there is one of this name, and it has these settings.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimizerSettings& changed,
                                          const FlatBuffer& values);

double gradient_norm(KernelContext& context, const FlatBuffer& gradients);  // Euclidean norm
// Returns the factor that reduces a norm to max_norm: min(1, max_norm / (norm + 1e-6)), as in
// torch.nn.utils.clip_grad_norm_; 1 if max_norm <= 0. A non-finite norm gives NaN or 0, so that it
// is not hidden.
double clip_factor(double norm, double max_norm);

}  // namespace engine
