// SGD and AdamW: state and bookkeeping around the one-pass kernels.
#include "engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/optim_step/device_step.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {
namespace {

TensorView half_view(void* half_copy, DType half, const FlatBuffer& values) {
  return {half_copy, half, Shape{values.size()}, values.device()};
}

class Sgd : public Optimizer {
 public:
  Sgd(const SgdOptions& options, const FlatBuffer& values) : options_(options) {
    if (options.momentum != 0) velocity_ = FlatBuffer::like(values);
  }
  std::string_view name() const override { return "sgd"; }
  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    const ops::SgdStep s{.lr = lr,
                         .momentum = options_.momentum,
                         .weight_decay = options_.weight_decay,
                         .gradient_scale = gradient_scale,
                         .nesterov = options_.nesterov,
                         .first = step_count_ == 0};
    const TensorView velocity = options_.momentum != 0 ? velocity_.flat() : TensorView{};
    ops::sgd_step(context, s, gradients.flat(), velocity, values.flat());
    ++step_count_;
  }
  void step_on_device(KernelContext& context, const StepNumbers* numbers, StepControl* control,
                      const FlatBuffer& gradients, FlatBuffer& values, void* half_copy,
                      DType half) override {
    const ops::SgdStep s{.momentum = options_.momentum,
                         .weight_decay = options_.weight_decay,
                         .nesterov = options_.nesterov};
    const TensorView velocity = options_.momentum != 0 ? velocity_.flat() : TensorView{};
    ops::sgd_step(context, s, numbers, control, gradients.flat(), velocity, values.flat(),
                  half_view(half_copy, half, values));
  }
  std::vector<State> state() override {
    if (options_.momentum == 0) return {};
    return {{"momentum", &velocity_}};
  }

 private:
  SgdOptions options_;
  FlatBuffer velocity_;
};

class Adamw : public Optimizer {
 public:
  Adamw(const AdamwOptions& options, const FlatBuffer& values)
      : options_(options), first_(FlatBuffer::like(values)), second_(FlatBuffer::like(values)) {}
  std::string_view name() const override { return "adamw"; }
  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    const ops::AdamwStep s{.lr = lr,
                           .beta1 = options_.beta1,
                           .beta2 = options_.beta2,
                           .eps = options_.eps,
                           .weight_decay = options_.weight_decay,
                           .gradient_scale = gradient_scale,
                           .count = step_count_ + 1};
    ops::adamw_step(context, s, gradients.flat(), first_.flat(), second_.flat(), values.flat());
    ++step_count_;
  }
  void step_on_device(KernelContext& context, const StepNumbers* numbers, StepControl* control,
                      const FlatBuffer& gradients, FlatBuffer& values, void* half_copy,
                      DType half) override {
    const ops::AdamwStep s{.beta1 = options_.beta1,
                           .beta2 = options_.beta2,
                           .eps = options_.eps,
                           .weight_decay = options_.weight_decay};
    ops::adamw_step(context, s, numbers, control, gradients.flat(), first_.flat(), second_.flat(),
                    values.flat(), half_view(half_copy, half, values));
  }
  std::vector<State> state() override { return {{"exp_avg", &first_}, {"exp_avg_sq", &second_}}; }

 private:
  AdamwOptions options_;
  FlatBuffer first_, second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options, const FlatBuffer& values) {
  return std::make_unique<Sgd>(options, values);
}

std::unique_ptr<Optimizer> make_adamw(const AdamwOptions& options, const FlatBuffer& values) {
  return std::make_unique<Adamw>(options, values);
}

double clip_factor(KernelContext& context, const FlatBuffer& gradients, double max_norm) {
  if (max_norm <= 0) return 1;
  const double norm = std::sqrt(ops::sum_of_squares(context, gradients.flat()));
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;
}

}  // namespace engine
