// Runs one call on the same numbers in f32 and in f64, the plain loops. Operands are given in f32;
// the call gets a view of each, in their order, and may write to any.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/core/dtype.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace kernel_test {

// The storage of an operand: activations as the test says, the others the same everywhere.
enum class StoredAs { kActivation, kF32, kI32, kU8 };

struct Given {
  Operand<float> operand;
  StoredAs as = StoredAs::kActivation;

  Given(Operand<float> values, StoredAs type = StoredAs::kActivation)  // NOLINT: implicit
      : operand(std::move(values)), as(type) {}
  // Tokens, labels, ranks.
  Given(const Operand<std::int32_t>& values)  // NOLINT: implicit
      : operand(values.shape, 0.f), as(StoredAs::kI32) {
    operand.values.assign(values.values.begin(), values.values.end());
  }
};

// Parameters, their gradients, losses.
inline Given state(Operand<float> operand) { return {std::move(operand), StoredAs::kF32}; }
// Numbers that a call overwrites.
inline Operand<float> nothing(const Shape& shape) { return gemm_test::nan_operand(shape); }
inline Given no_bytes(const Shape& shape) { return {Operand<float>(shape, 254), StoredAs::kU8}; }

// Returns a number as `Storage` keeps it.
template <class Storage>
double kept_number(float value) {
  if constexpr (std::is_same_v<Storage, double>)
    return value;
  else
    return engine::to_float(engine::from_float<Storage>(value));
}

// An operand in memory of the host, activations rounded to what `Storage` keeps of them.
template <class T, class Storage>
class HostTensor {
 public:
  explicit HostTensor(const Given& given) : as_(given.as) {
    const Operand<float>& from = given.operand;
    if (as_ == StoredAs::kI32)
      ints_ = operand_of<std::int32_t>(from.shape, {from.values.begin(), from.values.end()});
    else if (as_ == StoredAs::kU8)
      bytes_ = operand_of<std::uint8_t>(from.shape, {from.values.begin(), from.values.end()});
    else
      numbers_ = Operand<T>(from.shape, T{});
    for (std::size_t i = 0; i < numbers_.values.size(); ++i)
      numbers_.values[i] = static_cast<T>(
          as_ == StoredAs::kF32 ? from.values[i] : kept_number<Storage>(from.values[i]));
  }

  TensorView view() {
    if (as_ == StoredAs::kI32) return ints_.view();
    return as_ == StoredAs::kU8 ? bytes_.view() : numbers_.view();
  }
  std::vector<T> values() const {
    if (as_ == StoredAs::kI32) return {ints_.values.begin(), ints_.values.end()};
    if (as_ == StoredAs::kU8) return {bytes_.values.begin(), bytes_.values.end()};
    return numbers_.values;
  }

 private:
  StoredAs as_;
  Operand<T> numbers_;
  Operand<std::int32_t> ints_;
  Operand<std::uint8_t> bytes_;
};

// The operands after a call, in T.
template <class T, class Storage = float, std::size_t N, class Call>
std::array<std::vector<T>, N> run_on_host(KernelContext& context, const Given (&operands)[N],
                                          Call& call) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    std::array<HostTensor<T, Storage>, N> tensors{HostTensor<T, Storage>(operands[I])...};
    call(context, tensors[I].view()...);
    return std::array<std::vector<T>, N>{tensors[I].values()...};
  }
  (std::make_index_sequence<N>());
}

// Pairs of each operand: found and expected.
template <std::size_t N, class Found = float>
struct Runs {
  std::array<std::vector<Found>, N> found;
  std::array<std::vector<double>, N> expected;
};

template <std::size_t N, class Call>
Runs<N> run_both(int threads, const Given (&operands)[N], Call call,
                 std::size_t scratch_bytes = 0) {
  Context c(threads, scratch_bytes);
  return {run_on_host<float>(c.context, operands, call),
          run_on_host<double>(c.context, operands, call)};
}

}  // namespace kernel_test
