// Runs one call on a CUDA device, with activations in any storage, and in f64 on the numbers that
// the storage keeps.
#pragma once

#include <optional>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace cuda_test {

// Floats as T, whole numbers included, and back.
template <class T>
std::vector<T> numbers_as(const std::vector<float>& values) {
  if constexpr (std::is_integral_v<T>)
    return {values.begin(), values.end()};
  else
    return stored<T>(values);
}
template <class T>
std::vector<StateOf<T>> numbers_of(const std::vector<T>& values) {
  if constexpr (std::is_integral_v<T>)
    return {values.begin(), values.end()};
  else
    return as_floats(values);
}

// A tensor that begins `shift` elements behind a multiple of 16 bytes, between guards.
template <class T>
class Shifted {
 public:
  Shifted(const Shape& shape, const std::vector<float>& values, std::int64_t shift)
      : shape_(shape), shift_(shift), memory_(padded(values, shift)) {}
  TensorView view() const {
    return {static_cast<T*>(memory_.view().data) + shift_, engine::DTypeOf<T>::value, shape_,
            kDevice};
  }
  std::vector<StateOf<T>> values() const {
    const std::vector<StateOf<T>> all = numbers_of(memory_.values());
    for (std::int64_t i = 0; i < shift_; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], kGuard);
    EXPECT_EQ(all.back(), kGuard);
    return {all.begin() + shift_, all.end() - 1};
  }

 private:
  static constexpr float kGuard = 64;
  static DeviceOperand<T> padded(const std::vector<float>& values, std::int64_t shift) {
    std::vector<float> all(static_cast<std::size_t>(shift), kGuard);
    all.insert(all.end(), values.begin(), values.end());
    all.push_back(kGuard);
    return {{static_cast<std::int64_t>(all.size())}, numbers_as<T>(all)};
  }

  Shape shape_;
  std::int64_t shift_;
  DeviceOperand<T> memory_;
};

// An operand on the device, activations as `Storage`.
template <class Storage>
class DeviceTensor {
 public:
  DeviceTensor(const Given& given, std::int64_t shift) {
    const auto& [shape, values] = std::pair(given.operand.shape, given.operand.values);
    if (given.as == StoredAs::kI32)
      ints_.emplace(shape, values, 0);
    else if (given.as == StoredAs::kU8)
      bytes_.emplace(shape, values, shift);
    else if (given.as == StoredAs::kF32)
      state_.emplace(shape, values, 0);
    else
      activation_.emplace(shape, values, shift);
  }
  TensorView view() const {
    if (ints_) return ints_->view();
    if (bytes_) return bytes_->view();
    return state_ ? state_->view() : activation_->view();
  }
  std::vector<StateOf<Storage>> values() const {
    const auto widened = [](const std::vector<float>& values) {
      return std::vector<StateOf<Storage>>(values.begin(), values.end());
    };
    if (ints_) return widened(ints_->values());
    if (bytes_) return widened(bytes_->values());
    return state_ ? state_->values() : activation_->values();
  }

 private:
  std::optional<Shifted<Storage>> activation_;
  std::optional<Shifted<StateOf<Storage>>> state_;
  std::optional<Shifted<std::int32_t>> ints_;
  std::optional<Shifted<std::uint8_t>> bytes_;
};

// Activations begin `shift` elements behind a multiple of 16 bytes.
template <class Storage, std::size_t N, class Call>
Runs<N, StateOf<Storage>> run_on_device(const DeviceContext& device, const Given (&operands)[N],
                                        Call call, std::int64_t shift = 0) {
  Runs<N, StateOf<Storage>> runs;
  Context host(1, 0);
  runs.expected = run_on_host<double, Storage>(host.context, operands, call);
  KernelContext context = device.context;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::array<DeviceTensor<Storage>, N> tensors{
        DeviceTensor<Storage>(operands[I], shift)...};
    call(context, tensors[I].view()...);
    device.finish();
    runs.found = {tensors[I].values()...};
  }
  (std::make_index_sequence<N>());
  return runs;
}
template <class Storage, std::size_t N, class Call>
Runs<N, StateOf<Storage>> run_on_device(const Given (&operands)[N], Call call,
                                        std::int64_t shift = 0) {
  return run_on_device<Storage>(DeviceContext(), operands, call, shift);
}

}  // namespace cuda_test
