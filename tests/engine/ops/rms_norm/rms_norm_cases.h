// All operands of the calls of RMS normalization, wherever they are: numbers on the host in f32 or
// f64, what a storage keeps of them, and memory of a device.
#pragma once

#include <gtest/gtest.h>

#include <type_traits>

#include "engine/ops/rms_norm/rms_norm.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace kernel_test {

struct RmsNormSetting {
  Shape shape;
  std::int64_t width = 0;  // of the parts; 0: whole rows
  engine::ops::RmsNormParts parts{};

  std::int64_t gamma() const { return width > 0 ? width : shape[shape.rank() - 1]; }
  // Whether element i of a row is normalized.
  bool has(std::int64_t i) const {
    return width == 0 || (i >= parts.first && i < parts.first + parts.count * width);
  }
  std::string text() const {
    return shape.to_string() + ", " + std::to_string(parts.count) + " parts of " +
           std::to_string(width) + " from " + std::to_string(parts.first);
  }
};

// Whole rows, aligned and not, within a warp's registers and beyond; heads of a fused projection.
inline const RmsNormSetting kRmsNorms[] = {{{0, 8}},
                                           {{1, 1}},
                                           {{3, 7}},
                                           {{21, 48}},
                                           {{4, 33}},
                                           {{2, 9, 128}},
                                           {{3, 520}},
                                           {{70, 100}},
                                           {{3, 777}},
                                           {{2, 1024}},
                                           {{2, 2304}},
                                           {{300, 8}},
                                           {{2, 5, 40}, 8, {0, 3}},
                                           {{2, 5, 40}, 8, {24, 1}},
                                           {{1, 7, 35}, 5, {10, 4}},
                                           {{2, 3, 33}, 8, {1, 4}},
                                           {{0, 3, 40}, 8, {0, 3}},
                                           {{65, 520}, 64, {8, 8}},
                                           {{3, 2600}, 1300, {0, 2}}};

// A: operands of activations, P: of the parameter and the statistic.
template <class A, class P = A>
struct RmsNormCase {
  engine::ops::RmsNormParts parts;
  A x, dy, y, dx;
  P gamma, inverse_rms, dgamma;

  // The same operands elsewhere.
  template <class OfA, class OfP>
  auto as(OfA a, OfP p) const {
    return RmsNormCase<std::remove_cvref_t<decltype(a(x))>,
                       std::remove_cvref_t<decltype(p(gamma))>>{
        parts, a(x), a(dy), a(y), a(dx), p(gamma), p(inverse_rms), p(dgamma)};
  }

  void forward(KernelContext& context) { forward(context, y.view(), inverse_rms.view()); }
  void forward(KernelContext& context, const TensorView& to, const TensorView& kept) {
    engine::ops::rms_norm_forward(context, {x.view(), gamma.view(), 1e-6, to, kept, parts});
  }
  void backward(KernelContext& context, Write write) { backward(context, write, dx.view()); }
  void backward(KernelContext& context, Write write, const TensorView& to) {
    engine::ops::rms_norm_backward(context, {x.view(), gamma.view(), inverse_rms.view(), dy.view(),
                                             dgamma.view(), write, to, write, parts});
  }
};

// Elements that are not normalized are 9 in y and dx, and NaN in x and dy.
inline RmsNormCase<Operand<float>> rms_norm_case(const RmsNormSetting& s, Write write) {
  RmsNormCase<Operand<float>> c;
  c.parts = s.parts;
  c.x = random_operand(s.shape, 1);
  for (float& value : c.x.values) value = value * 3 + 1;
  c.dy = random_operand(s.shape, 4);
  c.y = gemm_test::nan_operand(s.shape);
  c.dx = output(s.shape, write);
  const std::int64_t stride = s.shape[s.shape.rank() - 1];
  for (std::size_t i = 0; i < c.x.values.size(); ++i)
    if (!s.has(static_cast<std::int64_t>(i) % stride)) {
      c.x.values[i] = c.dy.values[i] = NAN;
      c.y.values[i] = c.dx.values[i] = 9;
    }
  c.gamma = random_operand({s.gamma()}, 2);
  c.dgamma = output({s.gamma()}, write);
  const std::int64_t count = s.parts.count > 0 ? s.parts.count : 1;
  c.inverse_rms = gemm_test::nan_operand({s.shape.count() / stride * count});
  return c;
}

}  // namespace kernel_test
