// Implements the class that make_elementwise() returns.
#include "engine/optim/elementwise_optimizer.h"

#include <algorithm>

#include "engine/ops/optim_step/device_step.h"

namespace engine {
namespace {

// Allocates memory for `count` elements without names.
FlatBuffer nameless(const FlatBuffer& values, std::int64_t count) {
  if (count == 0) return {values.dtype(), {}, values.device()};
  return {
      values.dtype(), {{"", TensorLayout::plain(Shape{count}), values.dtype()}}, values.device()};
}

ops::UpdateStep with_decay(ops::UpdateStep step, double factor) {
  std::visit(
      [&](auto& any) {
        if constexpr (requires { any.weight_decay; }) any.weight_decay *= factor;
      },
      step);
  return step;
}

class Elementwise final : public Optimizer {
 public:
  Elementwise(const OptimizerSpec& spec, const ops::UpdateStep& step,
              const std::vector<OptimizerState>& states, const OptimizerParts& parts)
      : Optimizer(spec), step_(step), states_(states) {
    const std::vector<Elements> all{{0, parts.values.size()}};
    const std::vector<Elements>& share = parts.share == nullptr ? all : *parts.share;
    for (std::size_t i = 0; i < states.size(); ++i)
      buffers_.push_back(parts.share == nullptr ? FlatBuffer::like(parts.values)
                                                : nameless(parts.values, count_of(share)));
    for (const UpdateRange& range : parts.ranges) add(range, share);
    if (parts.ranges.empty()) add({0, parts.values.size(), 1}, share);
  }

  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    for (const Part& part : parts_) {
      const UpdateRange& r = part.range;
      ops::update(context,
                  {.step = at_time(part.step, {lr * r.rate, gradient_scale, step_count_ + 1}),
                   .gradient = gradients.part(r.first, r.count),
                   .states = part.states,
                   .value = values.part(r.first, r.count)});
    }
    ++step_count_;
  }

  void step_on_device(KernelContext& context, const DeviceStep& step) override {
    for (const Part& part : parts_) {
      const UpdateRange& r = part.range;
      ops::update_on_device(context, {.step = part.step,
                                      .numbers = step.numbers,
                                      .control = step.control,
                                      .gradient = step.gradients.part(r.first, r.count),
                                      .states = part.states,
                                      .value = step.values.part(r.first, r.count),
                                      .half_copy = step.halves(r.first, r.count),
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
    ops::UpdateStep step;
    std::vector<TensorView> states;
  };
  // Adds the part of the range that is in the share.
  void add(const UpdateRange& range, const std::vector<Elements>& share) {
    std::int64_t before = 0;  // elements of the share
    for (const Elements& own : share) {
      const std::int64_t first = std::max(range.first, own.first),
                         end = std::min(range.first + range.count, own.first + own.count);
      if (first < end) {
        Part part{
            {first, end - first, range.rate, range.decay}, with_decay(step_, range.decay), {}};
        for (const FlatBuffer& buffer : buffers_)
          part.states.push_back(buffer.part(before + first - own.first, end - first));
        parts_.push_back(std::move(part));
      }
      before += own.count;
    }
  }

  ops::UpdateStep step_;
  std::vector<OptimizerState> states_;
  std::vector<FlatBuffer> buffers_;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<Optimizer> make_elementwise(const OptimizerSpec& spec, const ops::UpdateStep& step,
                                            const std::vector<OptimizerState>& states,
                                            const OptimizerParts& parts) {
  return std::make_unique<Elementwise>(spec, step, states, parts);
}

ops::UpdateStep at_time(ops::UpdateStep step, const ops::UpdateTime& time) {
  std::visit([&](auto& any) { any.set(time); }, step);
  return step;
}

}  // namespace engine
