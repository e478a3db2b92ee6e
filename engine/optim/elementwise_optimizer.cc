// The class behind make_elementwise().
#include "engine/optim/elementwise_optimizer.h"

#include "engine/ops/optim_step/device_step.h"

namespace engine {
namespace {

class Elementwise final : public Optimizer {
 public:
  Elementwise(const OptimizerSpec& spec, const ops::UpdateStep& step,
              const std::vector<OptimizerState>& states, const FlatBuffer& values,
              const std::vector<UpdateRange>& ranges)
      : Optimizer(spec), step_(step), states_(states) {
    for (std::size_t i = 0; i < states.size(); ++i) buffers_.push_back(FlatBuffer::like(values));
    for (const UpdateRange& range : ranges) add(range);
    if (ranges.empty()) add({0, values.size(), 1});
  }

  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    for (const Part& part : parts_) {
      const UpdateRange& r = part.range;
      ops::update(context, {.step = at_time(step_, {lr * r.rate, gradient_scale, step_count_ + 1}),
                            .gradient = gradients.part(r.first, r.count),
                            .states = part.states,
                            .value = values.part(r.first, r.count)});
    }
    ++step_count_;
  }

  void step_on_device(KernelContext& context, const StepNumbers* numbers, StepControl* control,
                      const FlatBuffer& gradients, FlatBuffer& values, void* half_copy,
                      DType half) override {
    for (const Part& part : parts_) {
      const UpdateRange& r = part.range;
      std::byte* halves = nullptr;
      if (half_copy != nullptr)
        halves =
            static_cast<std::byte*>(half_copy) + static_cast<std::size_t>(r.first) * size_of(half);
      ops::update_on_device(context, {.step = step_,
                                      .numbers = numbers,
                                      .control = control,
                                      .gradient = gradients.part(r.first, r.count),
                                      .states = part.states,
                                      .value = values.part(r.first, r.count),
                                      .half_copy = {halves, half, Shape{r.count}, values.device()},
                                      .rate = r.rate});
    }
  }

  std::vector<State> state() override {
    std::vector<State> all;
    for (std::size_t i = 0; i < states_.size(); ++i)
      all.push_back({states_[i].name, states_[i].role, &buffers_[i]});
    return all;
  }

 private:
  struct Part {
    UpdateRange range;
    std::vector<TensorView> states;
  };
  void add(const UpdateRange& range) {
    Part part{range, {}};
    for (const FlatBuffer& buffer : buffers_)
      part.states.push_back(buffer.part(range.first, range.count));
    parts_.push_back(std::move(part));
  }

  ops::UpdateStep step_;
  std::vector<OptimizerState> states_;
  std::vector<FlatBuffer> buffers_;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<Optimizer> make_elementwise(const OptimizerSpec& spec, const ops::UpdateStep& step,
                                            const std::vector<OptimizerState>& states,
                                            const FlatBuffer& values,
                                            const std::vector<UpdateRange>& ranges) {
  return std::make_unique<Elementwise>(spec, step, states, values, ranges);
}

ops::UpdateStep at_time(ops::UpdateStep step, const ops::UpdateTime& time) {
  std::visit([&](auto& any) { any.set(time); }, step);
  return step;
}

}  // namespace engine
