// Batched matrix products on random operands, for the tests of the CPU and of the device.
#pragma once

#include <string>
#include <vector>

#include "engine/ops/matmul/matmul.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {

struct MatmulSetting {
  std::vector<std::int64_t> leading;
  std::int64_t m, n, k;
  bool transpose_b = false;
  double scale = 1;

  Shape shape(std::int64_t rows, std::int64_t columns) const {
    std::vector<std::int64_t> dims = leading;
    dims.insert(dims.end(), {rows, columns});
    return Shape(std::span<const std::int64_t>(dims));
  }
  Shape a() const { return shape(m, k); }
  Shape b() const { return transpose_b ? shape(n, k) : shape(k, n); }
  Shape y() const { return shape(m, n); }
  std::string text() const {
    return a().to_string() + " * " + b().to_string() + (transpose_b ? " transposed" : "");
  }
  MatmulSizes sizes() const { return {a().count() / (m * k), m, n, k}; }
};

// One product, more products than threads, fewer; sizes around those of tiles; matrices whose rows
// are aligned to 16 bytes and others; no product at all.
inline const MatmulSetting kMatmuls[] = {
    {{}, 3, 5, 7},
    {{2, 3}, 7, 5, 9, false, 0.25},
    {{2, 3}, 7, 5, 9, true, 0.3},
    {{4}, 33, 48, 64, false, 1},
    {{4}, 40, 24, 16, true, 0.125},
    {{1, 1, 2}, 70, 130, 72, true, 1},
    {{1}, 1, 1, 1, false, 2},
    {{0, 2}, 4, 4, 4, true, 1},
};

// All operands of forward and backward. Operand: that of numbers in host memory or of the device.
template <class Operand>
struct MatmulCase {
  Operand a, b, y, dy, da, db;

  template <class Convert>
  auto as(Convert convert) const {
    return MatmulCase<decltype(convert(a))>{convert(a),  convert(b),  convert(y),
                                            convert(dy), convert(da), convert(db)};
  }
  void forward(KernelContext& context, const MatmulSetting& s) {
    matmul_forward(context, {.a = a.view(),
                             .b = b.view(),
                             .transpose_b = s.transpose_b,
                             .scale = s.scale,
                             .y = y.view()});
  }
  void backward(KernelContext& context, const MatmulSetting& s, Write write) {
    matmul_backward(context, {.a = a.view(),
                              .b = b.view(),
                              .dy = dy.view(),
                              .transpose_b = s.transpose_b,
                              .scale = s.scale,
                              .da = da.view(),
                              .db = db.view(),
                              .da_write = write,
                              .db_write = write});
  }
};

inline MatmulCase<kernel_test::Operand<float>> matmul_case(const MatmulSetting& s, Write write) {
  using namespace kernel_test;
  return {random_operand(s.a(), 1), random_operand(s.b(), 2), gemm_test::nan_operand(s.y()),
          random_operand(s.y(), 3), output(s.a(), write),     output(s.b(), write)};
}

}  // namespace engine::ops
