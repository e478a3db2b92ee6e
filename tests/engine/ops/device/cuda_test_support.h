// What the tests of CUDA kernels share: a device to run on (a real one, or the emulator of
// tests/emulator), operands that are copied there and back, and comparison with the float64
// reference.
//
// A test runs where a device is found and is skipped, and counted as skipped, elsewhere.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/dtype.h"
#include "io/gpu/kernel_resources.h"
#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace cuda_test {

using namespace kernel_test;
using engine::bf16;
using engine::f16;
using engine::Products;

using Storages = ::testing::Types<float, bf16, f16, double>;  // of activations, for typed tests
// The numbers of statistics, losses and gradients of parameters beside activations stored as T.
template <class T>
using StateOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline constexpr engine::Device kDevice{engine::Device::Kind::kCuda, 0};

// Skips every test of the suite where there is no device.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    engine::cuda::use_device(0);
  }
};

// Whether kernels with sm_90a's instructions can be launched; the emulator runs them on every
// device that has the shared memory.
inline bool runs_warpgroup_products() {
  const engine::cuda::DeviceInfo device = engine::cuda::device_info(0);
  return (device.name == "emulated GPU" && device.major >= 8) || device.major == 9;
}

// Whether a block of the device has the shared memory for a product's tile, with some for tables:
// two stages of its lines of 128 bytes, then the tile itself.
inline bool tile_fits(int rows, int columns) {
  return std::size_t(std::max((rows + columns) * 256, rows * (columns + 4) * 4)) <
         engine::cuda::max_shared_bytes();
}

// A context on the device with its own stream and scratch.
struct DeviceContext {
  explicit DeviceContext(std::size_t scratch_bytes = 0, Products products = Products::kF32)
      : scratch(scratch_bytes, kDevice) {
    context.device = kDevice;
    context.scratch = {scratch.data(), scratch.bytes()};
    context.stream = stream.handle();
    context.products = products;
  }
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  void finish() const { stream.synchronize(); }

  engine::cuda::Stream stream;
  engine::Arena scratch;
  KernelContext context;
};

// A tensor in device memory. T: float, bf16, f16, double, std::int32_t ...; values come and go as
// such.
template <class T>
class DeviceOperand {
 public:
  DeviceOperand(const Shape& shape, const std::vector<T>& values)
      : shape_(shape), memory_(std::max<std::size_t>(values.size() * sizeof(T), 1), kDevice) {
    EXPECT_EQ(static_cast<std::size_t>(shape.count()), values.size());
    engine::cuda::copy_async(memory_.data(), values.data(), values.size() * sizeof(T), nullptr);
    engine::cuda::synchronize_device();
  }
  TensorView view() const { return {memory_.data(), engine::DTypeOf<T>::value, shape_, kDevice}; }
  // After everything issued so far.
  std::vector<T> values() const {
    engine::cuda::synchronize_device();
    std::vector<T> result(static_cast<std::size_t>(shape_.count()));
    engine::cuda::copy_async(result.data(), memory_.data(), result.size() * sizeof(T), nullptr);
    engine::cuda::synchronize_device();
    return result;
  }

 private:
  Shape shape_;
  engine::Arena memory_;
};

// Storage of a tensor of floats as T, and back.
template <class T>
std::vector<T> stored(const std::vector<float>& values) {
  std::vector<T> result;
  result.reserve(values.size());
  for (const float value : values) {
    if constexpr (std::is_same_v<T, double>)
      result.push_back(value);
    else
      result.push_back(engine::from_float<T>(value));
  }
  return result;
}
// As doubles where T is double.
template <class T>
std::vector<StateOf<T>> as_floats(const std::vector<T>& values) {
  std::vector<StateOf<T>> result;
  result.reserve(values.size());
  for (const T value : values) {
    if constexpr (std::is_same_v<T, double>)
      result.push_back(value);
    else
      result.push_back(engine::to_float(value));
  }
  return result;
}
template <class T>
DeviceOperand<T> to_device(const Shape& shape, const std::vector<float>& values) {
  return DeviceOperand<T>(shape, stored<T>(values));
}
// A copy of an operand of the host, stored as T.
template <class T, class From = float>
DeviceOperand<T> to_device_as(const Operand<From>& operand) {
  if constexpr (std::is_same_v<T, From>)
    return {operand.shape, operand.values};
  else
    return to_device<T>(operand.shape, operand.values);
}
// The numbers that the storage T keeps of these, as f64: what the reference must be given, so that
// only arithmetic is compared.
template <class T>
Operand<double> kept(const Operand<float>& operand) {
  Operand<double> wide(operand.shape, 0);
  for (std::size_t i = 0; i < operand.values.size(); ++i)
    wide.values[i] = kept_number<T>(operand.values[i]);
  return wide;
}

// The largest difference relative to the largest magnitude of what is expected (or to `floor`,
// where that is larger); infinite where a value is not finite or sizes differ.
template <class Found>
double relative_error(const std::vector<Found>& found, const std::vector<double>& expected,
                      double floor = 1e-30) {
  if (found.size() != expected.size()) return INFINITY;
  double largest = floor, difference = 0;
  for (const double e : expected) largest = std::max(largest, std::fabs(e));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double d = std::fabs(static_cast<double>(found[i]) - expected[i]);
    if (!(d <= difference)) difference = std::isfinite(d) ? d : INFINITY;
  }
  return difference / largest;
}

// What a result stored as T may be off by: half a unit in its last place, and the arithmetic's own
// share.
template <class T>
constexpr double storage_error() {
  if constexpr (std::is_same_v<T, bf16>) return 0.0045;
  if constexpr (std::is_same_v<T, f16>) return 0.0006;
  return std::is_same_v<T, double> ? 1e-12 : 1e-5;
}
// The same of StateOf<T>.
template <class T>
constexpr double state_error() {
  return storage_error<StateOf<T>>();
}

}  // namespace cuda_test
