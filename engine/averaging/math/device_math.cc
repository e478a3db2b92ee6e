// Enqueues the kernels of the optimizer step. Their numbers are in device memory, also for an outer
// step, whose kernel is that of an update by SGD.
#include "engine/averaging/math/device_math.h"

#include <algorithm>
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

// The codes of one piece of a sum are in memory.
Elements largest_piece(std::int64_t elements) { return {0, std::min(elements, kCodedPiece)}; }

}  // namespace

DeviceMath::DeviceMath(const DeviceMathParts& parts)
    : parts_(parts),
      buffers_{parts.values, parts.gradients},
      numbers_(sizeof(Numbers), parts.context.device, "workspace"),
      pinned_(static_cast<std::byte*>(cuda::allocate_pinned(sizeof(Numbers)))) {
  const FlatBuffer& gradients = *parts.gradients.second;
  if (parts.communicator != nullptr)
    parts.communicator->register_memory(gradients.data(), gradients.bytes());
  if (!parts.codes) return;
  const Elements pieces[] = {largest_piece(gradients.size())};
  codes_.emplace(CodeExchange{parts.codes->in_host_memory, parts.communicator},
                 parts.codes->options, "parameters", pieces, parts.context.device);
}

DeviceMath::~DeviceMath() {
  if (parts_.communicator != nullptr)
    parts_.communicator->deregister_memory(parts_.gradients.second->data());
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

void DeviceMath::update_half(const TensorView& changed) {
  const FlatBuffer& values = *parts_.values.second;
  const auto *begin = static_cast<const std::byte*>(values.data()),
             *at = static_cast<const std::byte*>(changed.data);
  if (!parts_.half || std::less<>{}(at, begin) || !std::less<>{}(at, begin + values.bytes()))
    return;
  TensorView half = parts_.half;
  half.data = static_cast<std::byte*>(half.data) +
              static_cast<std::size_t>(at - begin) / size_of(values.dtype()) * size_of(half.dtype);
  half.shape = changed.shape;
  ops::copy_to_half(parts_.context, changed, half);
}

void DeviceMath::wait() {
  cuda::Event end;
  end.record(parts_.context.stream);
  end.synchronize();
}

void DeviceMath::copy(const TensorView& from, const TensorView& to) {
  require(from.bytes() == to.bytes(), "rows of unequal size");
  const TensorView target = there(to);
  if (to.bytes() > 0)
    cuda::copy_async(target.data, there(from).data, to.bytes(), parts_.context.stream);
  update_half(target);
}

void DeviceMath::scale(double factor, const TensorView& from, const TensorView& to) {
  ops::scale_on_device(parts_.context, factor, there(from), there(to));
}

void DeviceMath::subtract(const TensorView& a, const TensorView& b, const TensorView& to) {
  ops::subtract_on_device(parts_.context, there(a), there(b), there(to));
}

void DeviceMath::combine(double x, const TensorView& a, double y, const TensorView& b,
                         const TensorView& to) {
  const TensorView target = there(to);
  ops::combine_on_device(parts_.context, x, there(a), y, there(b), target);
  update_half(target);
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

void DeviceMath::fetch(const TensorView& values) {
  wait();  // a copy to memory that is not pinned would itself wait, and block other streams
  if (values.bytes() == 0) return;
  cuda::copy_async(values.data, there(values).data, values.bytes(), parts_.context.stream);
  wait();
}

void DeviceMath::store(const TensorView& values) {
  if (values.bytes() == 0) return;
  const TensorView target = there(values);
  cuda::copy_async(target.data, values.data, values.bytes(), parts_.context.stream);
  update_half(target);
}

// The communicator's own stream sees what the calculations, which have ended, have written.
void DeviceMath::sum_on_devices(const TensorView& values, backends::DeviceCommunicator* some) {
  backends::DeviceCommunicator* const communicator = some != nullptr ? some : parts_.communicator;
  require(communicator != nullptr, "a sum of devices without their communicator");
  cuda::use_device(parts_.context.device.index);  // of the calling thread
  communicator->all_reduce(there(values).data, static_cast<std::size_t>(values.count()),
                           values.dtype, backends::ReduceOp::kSum);
}

void DeviceMath::sum_codes(const CodedViews& views, Elements range, std::int64_t round) {
  require(codes_.has_value(), "a sum of codes on a device without their memory");
  codes_->sum({there(views.values), there(views.error), there(views.rest)}, range, round);
}

std::size_t coded_parameters_bytes(const LossyOptions& options, std::int64_t elements, int ranks) {
  const Elements pieces[] = {largest_piece(elements)};
  return device_coded_bytes(options, pieces, ranks);
}

}  // namespace engine
