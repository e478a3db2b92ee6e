// Enqueues the kernels of the optimizer step. Their numbers are in device memory, also for an outer
// step, whose kernel is that of an update by SGD.
#include "engine/averaging/math/device_math.h"

#include <cstring>
#include <functional>

#include "engine/core/cuda.h"
#include "engine/core/error.h"
#include "engine/ops/optim_step/device_step.h"

namespace engine {
namespace {

struct Numbers {
  StepNumbers step;
  StepControl control;
};

}  // namespace

DeviceMath::DeviceMath(const DeviceMathParts& parts)
    : parts_(parts),
      buffers_{parts.values, parts.gradients},
      numbers_(sizeof(Numbers), parts.context.device, "workspace"),
      pinned_(static_cast<std::byte*>(cuda::allocate_pinned(sizeof(Numbers)))) {
  const FlatBuffer& gradients = *parts.gradients.second;
  parts.communicator.register_memory(gradients.data(), gradients.bytes());
}

DeviceMath::~DeviceMath() {
  parts_.communicator.deregister_memory(parts_.gradients.second->data());
  cuda::release_pinned(pinned_);
}

TensorView DeviceMath::there(const TensorView& view) const {
  TensorView found = view;
  if (!view) return found;
  const auto* at = static_cast<const std::byte*>(view.data);
  const std::less_equal<> no_later;  // also orders addresses of different arrays
  for (const auto& [host, device] : buffers_) {
    const auto* begin = static_cast<const std::byte*>(host->data());
    if (!no_later(begin, at) || !no_later(at + view.bytes(), begin + host->bytes())) continue;
    found.data = static_cast<std::byte*>(device->data()) + (at - begin);
    found.device = device->device();
    return found;
  }
  throw Error("memory that a device does not mirror");
}

void DeviceMath::wait() const {
  cuda::Event end;
  end.record(parts_.context.stream);
  end.synchronize();
}

void DeviceMath::copy(const TensorView& from, const TensorView& to) {
  require(from.bytes() == to.bytes(), "rows of unequal size");
  const TensorView target = there(to);
  if (to.bytes() > 0)
    cuda::copy_async(target.data, there(from).data, to.bytes(), parts_.context.stream);
  const FlatBuffer& values = *parts_.values.second;
  if (parts_.half && target.data == values.data())
    ops::copy_to_half(parts_.context, values.flat(), parts_.half);
}

void DeviceMath::scale(double factor, const TensorView& from, const TensorView& to) {
  ops::scale_on_device(parts_.context, factor, there(from), there(to));
}

void DeviceMath::subtract(const TensorView& a, const TensorView& b, const TensorView& to) {
  ops::subtract_on_device(parts_.context, there(a), there(b), there(to));
}

void DeviceMath::sgd_step(const ops::SgdStep& step, const TensorView& gradient,
                          const TensorView& velocity, const TensorView& value) {
  Numbers numbers{};
  numbers.step.lr = step.lr;
  numbers.step.wide_gradient_scale = step.gradient_scale;
  numbers.control.gradient_scale = static_cast<float>(step.gradient_scale);
  numbers.control.applied_steps = 2;  // not the first one, which would overwrite the velocity
  wait();                             // the copy of earlier numbers
  std::memcpy(pinned_, &numbers, sizeof numbers);
  cuda::copy_async(numbers_.data(), pinned_, sizeof numbers, parts_.context.stream);
  const auto* on_device = reinterpret_cast<const Numbers*>(numbers_.data());
  const TensorView states[] = {there(velocity)};
  ops::update_on_device(parts_.context,
                        {.step = ops::any_sgd(step),
                         .numbers = &on_device->step,
                         .control = &on_device->control,
                         .gradient = there(gradient),
                         .states = std::span(states).first(step.momentum != 0 ? 1U : 0U),
                         .value = there(value)});
}

double DeviceMath::sum_of_squares(const TensorView& values) {
  // With a scale, the kernel always computes the norm and does not read the step's numbers.
  constexpr LossScaleRule kScaled{.kind = LossScaleRule::Kind::kFixed};
  auto* on_device = reinterpret_cast<Numbers*>(numbers_.data());
  ops::find_overflow(parts_.context, kScaled, there(values), &on_device->step, &on_device->control);
  cuda::copy_async(pinned_, numbers_.data(), sizeof(Numbers), parts_.context.stream);
  wait();
  Numbers numbers{};
  std::memcpy(&numbers, pinned_, sizeof numbers);
  return numbers.control.squared_norm;
}

// The communicator's own stream sees what this one has written.
void DeviceMath::sum_over_ranks(const TensorView& values) {
  wait();
  parts_.communicator.all_reduce(there(values).data, static_cast<std::size_t>(values.count()),
                                 values.dtype, backends::ReduceOp::kSum);
}

}  // namespace engine
