// What the tests of kernels share: operands, poisoned scratch, and the comparison with a float64
// result.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/core/arena.h"
#include "engine/core/tensor_view.h"
#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/common/kernel_context.h"

namespace gemm_test {

// Memory of exactly the operand's size on the heap, so that the address sanitizer sees any step
// outside.
template <class T>
struct Operand {
  std::vector<T> values;
  engine::Shape shape;

  Operand() = default;
  Operand(const engine::Shape& s, T value)
      : values(static_cast<std::size_t>(s.count()), value), shape(s) {}

  engine::TensorView view() {
    return {values.empty() ? nullptr : values.data(), engine::DTypeOf<T>::value, shape, {}};
  }
};

inline Operand<float> random_operand(const engine::Shape& shape, std::uint32_t seed) {
  Operand<float> operand(shape, 0.f);
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.f, 1.f);
  for (float& value : operand.values) value = uniform(generator);
  return operand;
}

inline Operand<float> nan_operand(const engine::Shape& shape) {
  return {shape, std::numeric_limits<float>::quiet_NaN()};
}

// The same values in float64, or their magnitudes.
inline std::vector<double> widened(const Operand<float>& operand) {
  return {operand.values.begin(), operand.values.end()};
}
inline std::vector<double> magnitudes(const Operand<float>& operand) {
  std::vector<double> result;
  for (const float value : operand.values) result.push_back(std::fabs(static_cast<double>(value)));
  return result;
}
inline Operand<double> wide_magnitudes(const Operand<float>& operand) {
  Operand<double> wide(operand.shape, 0);
  wide.values = magnitudes(operand);
  return wide;
}

// A context whose scratch is exactly as large as asked for and full of NaN.
struct Context {
  engine::ThreadPool pool;
  engine::Arena memory;
  engine::KernelContext context;

  Context(int threads, std::size_t scratch_bytes) : pool(threads), memory(scratch_bytes) {
    for (std::size_t i = 0; i < scratch_bytes / sizeof(float); ++i) {
      reinterpret_cast<float*>(memory.data())[i] = std::numeric_limits<float>::quiet_NaN();
    }
    context = {{}, &pool, {memory.data(), scratch_bytes}};
  }
};

inline std::vector<engine::ops::CpuIsa> isas_here() {
  using engine::ops::CpuIsa;
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512})
    if (engine::ops::is_supported(isa)) isas.push_back(isa);
  return isas;
}

// Runs with another instruction set until the end of the scope.
class ScopedIsa {
 public:
  explicit ScopedIsa(engine::ops::CpuIsa isa) : before_(engine::ops::cpu_isa()) {
    engine::ops::set_cpu_isa(isa);
  }
  ~ScopedIsa() { engine::ops::set_cpu_isa(before_); }
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  engine::ops::CpuIsa before_;
};

// "" when every value is within 1e-5 of what was expected, relative to the sum of the magnitudes of
// its terms; else where the first is that is not (a NaN never is).
inline std::string difference(const std::vector<float>& found, const std::vector<double>& expected,
                              const std::vector<double>& magnitude) {
  if (found.size() != expected.size() || found.size() != magnitude.size()) return "sizes differ";
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!(std::fabs(found[i] - expected[i]) <= 1e-5 * magnitude[i])) {
      return "element " + std::to_string(i) + ": found " + std::to_string(found[i]) +
             ", expected " + std::to_string(expected[i]) + " of magnitude " +
             std::to_string(magnitude[i]);
    }
  }
  return "";
}

}  // namespace gemm_test
