// Resizing: PyTorch's numbers, gradients as the transpose of the forward pass at odd sizes, both
// dtypes, and sizes that do not fit.
#include "engine/ops/windows/resize.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/windows/resize_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

std::vector<double> resized(const ResizeAxis& rows, const ResizeAxis& columns) {
  Context c(2, 0);
  Operand<double> x = operand_of<double>({1, 2, 3, 1}, {1, 2, 3, 4, 5, 6}),
                  y({1, rows.out, columns.out, 1}, -1);
  resize_forward(c.context, {rows, columns, x.view(), y.view()});
  return y.values;
}

// torch.nn.functional.interpolate(x, ..., align_corners=False).
TEST(Resize, IsPyTorchs) {
  EXPECT_EQ(
      resized(by_factor(2, 2, true), by_factor(3, 2, true)),
      (std::vector<double>{1.0,  1.25, 1.75, 2.25, 2.75, 3.0,  1.75, 2.0,  2.5,  3.0,  3.5,  3.75,
                           3.25, 3.5,  4.0,  4.5,  5.0,  5.25, 4.0,  4.25, 4.75, 5.25, 5.75, 6.0}));
  EXPECT_EQ(resized(by_size(2, 3, true), by_size(3, 2, true)),
            (std::vector<double>{1.25, 2.75, 2.75, 4.25, 4.25, 5.75}));
  EXPECT_EQ(resized(by_factor(2, 1.5, false), by_factor(3, 1.5, false)),
            (std::vector<double>{1, 1, 2, 3, 1, 1, 2, 3, 4, 4, 5, 6}));
  EXPECT_EQ(resized(by_size(2, 5, false), by_size(3, 2, false)),
            (std::vector<double>{1, 2, 1, 2, 1, 2, 4, 5, 4, 5}));
  EXPECT_EQ(far_apart(resized(by_factor(2, 1.5, true), by_factor(3, 1.7, true)),
                      std::vector<double>{
                          1.0, 1.3823529411764706, 1.9705882352941178, 2.5588235294117645, 3.0, 2.5,
                          2.88235294117647, 3.4705882352941173, 4.058823529411764, 4.5, 4.0,
                          4.382352941176471, 4.970588235294118, 5.5588235294117645, 6.0},
                      1e-14, 0),
            "");
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// dx . x = dy . y for the gradient of a linear function.
TEST(Resize, BackwardIsTheTranspose) {
  for (const ResizeCase& r : kResizes)
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE(r.x().to_string() + " to " + r.y().to_string());
      Context c(3, 0);
      Operand<double> x = widen(random_operand(r.x(), 1)), dy = widen(random_operand(r.y(), 2)),
                      y = widen(gemm_test::nan_operand(r.y())), dx = widen(output(r.x(), write));
      const double before = write == Write::kAdd ? dot(dx.values, x.values) : 0;
      resize_forward(c.context, {r.rows, r.columns, x.view(), y.view()});
      resize_backward(c.context, {r.rows, r.columns, dy.view(), dx.view(), write});
      EXPECT_NEAR(dot(dx.values, x.values), before + dot(dy.values, y.values), 1e-9);
    }
}

TEST(Resize, FloatsAreThoseOfFloat64) {
  for (int threads = 1; threads <= 3; ++threads)
    for (const ResizeCase& r : kResizes)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        const Given operands[] = {random_operand(r.x(), 1), random_operand(r.y(), 2),
                                  nothing(r.y()), output(r.x(), write)};
        const auto [found, wide] = run_both(
            threads, operands,
            [&](KernelContext& c, TensorView x, TensorView dy, TensorView y, TensorView dx) {
              resize_forward(c, {r.rows, r.columns, x, y});
              resize_backward(c, {r.rows, r.columns, dy, dx, write});
            });
        EXPECT_EQ(far_apart(found[2], wide[2], 1e-5, 1e-6), "");
        EXPECT_EQ(far_apart(found[3], wide[3], 1e-5, 1e-6), "");
      }
}

struct StoredResize {
  const ResizeCase& r;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto x = stored_operand<T>(r.x(), 1), dy = stored_operand<T>(r.y(), 2),
         y = stored_output<T>(r.y(), Write::kOverwrite), dx = stored_output<T>(r.x(), Write::kAdd);
    Context c(2, 0);
    resize_forward(c.context, {r.rows, r.columns, x.view(), y.view()});
    resize_backward(c.context, {r.rows, r.columns, dy.view(), dx.view(), Write::kAdd});
    return {floats_of(y), floats_of(dx)};
  }
};

class ResizeStored : public Bf16Test {};

TEST_F(ResizeStored, IsThatOfFloatsRounded) {
  for (const ResizeCase& r : kResizes) expect_same_rounded(StoredResize{r}, 2);
}

TEST(Resize, RefusesSizesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> x({1, 2, 3, 4}, 0), y({1, 4, 6, 4}, 0);
  EXPECT_VALUES(
      shape_error([&] {
        resize_forward(c.context, {by_size(2, 4, true), by_size(3, 5, true), x.view(), y.view()});
      }),
      "resize_forward [1, 4, 6, 4] [1, 4, 5, 4]");
}

}  // namespace
}  // namespace engine::ops
