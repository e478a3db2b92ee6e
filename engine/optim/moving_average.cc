// Implements an optimizer that wraps another one.
#include "engine/optim/moving_average.h"

#include "engine/ops/optim_step/device_step.h"
#include "engine/optim/elementwise_optimizer.h"

namespace engine {
namespace {

class Averaged final : public Optimizer {
 public:
  Averaged(std::unique_ptr<Optimizer> inner, double decay, const FlatBuffer& values)
      : Optimizer(inner->spec()),
        inner_(std::move(inner)),
        step_(ops::AverageStep{.weight = 1 - decay}),
        average_(FlatBuffer::like(values)) {}

  std::string text() const override { return inner_->text(); }

  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    inner_->set_step_count(step_count_);
    inner_->step(context, lr, gradient_scale, gradients, values);
    step_count_ = inner_->step_count();
    ops::update(context, {.step = at_time(step_, {.count = step_count_}),
                          .gradient = values.flat(),
                          .states = {},
                          .value = average_.flat()});
  }

  void step_on_device(KernelContext& context, const DeviceStep& step) override {
    inner_->step_on_device(context, step);
    ops::update_on_device(context, {.step = step_,
                                    .numbers = step.numbers,
                                    .control = step.control,
                                    .gradient = step.values.flat(),
                                    .states = {},
                                    .value = average_.flat(),
                                    .half_copy = {}});
  }

  std::vector<State> state() override {
    std::vector<State> all = inner_->state();
    all.push_back({"average", StateRole::kAverage, &average_});
    return all;
  }

 private:
  const std::unique_ptr<Optimizer> inner_;
  const ops::UpdateStep step_;
  FlatBuffer average_;
};

}  // namespace

std::unique_ptr<Optimizer> with_moving_average(std::unique_ptr<Optimizer> inner, double decay,
                                               const FlatBuffer& values) {
  return std::make_unique<Averaged>(std::move(inner), decay, values);
}

FlatBuffer* moving_average(Optimizer& optimizer) {
  for (const Optimizer::State& state : optimizer.state())
    if (state.role == StateRole::kAverage) return state.buffer;
  return nullptr;
}

}  // namespace engine
