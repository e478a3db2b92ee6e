// The class behind make_elementwise().
#include "engine/optim/elementwise_optimizer.h"

#include "engine/ops/optim_step/device_step.h"

namespace engine {
namespace {

class Elementwise final : public Optimizer {
 public:
  Elementwise(const OptimizerSpec& spec, const ops::UpdateStep& step,
              const std::vector<OptimizerState>& states, const FlatBuffer& values)
      : Optimizer(spec), step_(step), states_(states) {
    for (std::size_t i = 0; i < states.size(); ++i) {
      buffers_.push_back(FlatBuffer::like(values));
      views_.push_back(buffers_.back().flat());
    }
  }

  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    ops::update(context, {.step = at_time(step_, {lr, gradient_scale, step_count_ + 1}),
                          .gradient = gradients.flat(),
                          .states = views_,
                          .value = values.flat()});
    ++step_count_;
  }

  void step_on_device(KernelContext& context, const StepNumbers* numbers, StepControl* control,
                      const FlatBuffer& gradients, FlatBuffer& values, void* half_copy,
                      DType half) override {
    ops::update_on_device(context,
                          {.step = step_,
                           .numbers = numbers,
                           .control = control,
                           .gradient = gradients.flat(),
                           .states = views_,
                           .value = values.flat(),
                           .half_copy = {half_copy, half, Shape{values.size()}, values.device()}});
  }

  std::vector<State> state() override {
    std::vector<State> all;
    for (std::size_t i = 0; i < states_.size(); ++i)
      all.push_back({states_[i].name, states_[i].role, &buffers_[i]});
    return all;
  }

 private:
  ops::UpdateStep step_;
  std::vector<OptimizerState> states_;
  std::vector<FlatBuffer> buffers_;
  std::vector<TensorView> views_;
};

}  // namespace

std::unique_ptr<Optimizer> make_elementwise(const OptimizerSpec& spec, const ops::UpdateStep& step,
                                            const std::vector<OptimizerState>& states,
                                            const FlatBuffer& values) {
  return std::make_unique<Elementwise>(spec, step, states, values);
}

ops::UpdateStep at_time(ops::UpdateStep step, const ops::UpdateTime& time) {
  std::visit([&](auto& any) { any.set(time); }, step);
  return step;
}

}  // namespace engine
