// What the tests of the memory-bound kernels share: running a call in f32 and in f64 on the same
// numbers, on every instruction set and with several threads, and comparing the two.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "tests/engine/ops/common/kernel_operands.h"

namespace kernel_test {

using engine::DType;
using engine::KernelContext;
using engine::Shape;
using engine::TensorView;
using engine::Write;
using engine::ops::CpuIsa;
using gemm_test::Context;
using gemm_test::Operand;
using gemm_test::random_operand;

inline Operand<double> widen(const Operand<float>& operand) {
  Operand<double> wide(operand.shape, 0);
  wide.values.assign(operand.values.begin(), operand.values.end());
  return wide;
}

template <class T>
Operand<T> operand_of(const Shape& shape, std::vector<T> values) {
  Operand<T> operand(shape, T{0});
  operand.values = std::move(values);
  return operand;
}

// "" when found and expected have one size and differ by at most absolute + relative * |expected|
// everywhere; else the first place where they do not (a NaN never is near anything).
template <class Found, class Expected>
std::string far_apart(const std::vector<Found>& found, const std::vector<Expected>& expected,
                      double relative, double absolute) {
  if (found.size() != expected.size()) {
    return "sizes " + std::to_string(found.size()) + " and " + std::to_string(expected.size());
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double f = found[i], e = expected[i];
    if (!(std::fabs(f - e) <= absolute + relative * std::fabs(e))) {
      return "element " + std::to_string(i) + ": found " + std::to_string(f) + ", expected " +
             std::to_string(e);
    }
  }
  return "";
}

// Calls check(threads) for every instruction set that this machine has and 1..3 threads.
template <class Check>
void for_each_setting(Check check) {
  for (const CpuIsa isa : gemm_test::isas_here()) {
    const gemm_test::ScopedIsa scope(isa);
    for (int threads = 1; threads <= 3; ++threads) {
      SCOPED_TRACE(std::string(engine::ops::to_string(isa)) + ", " + std::to_string(threads) +
                   " threads");
      check(threads);
    }
  }
}

// What an output starts with: NaN where it must be overwritten, numbers where they are added to.
inline Operand<float> output(const Shape& shape, Write write) {
  return write == Write::kAdd ? random_operand(shape, 77) : gemm_test::nan_operand(shape);
}

// The message of the ShapeError that the call throws.
inline std::string shape_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const engine::ShapeError& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace kernel_test
