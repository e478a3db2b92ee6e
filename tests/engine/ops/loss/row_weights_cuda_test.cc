// Weights of rows on a CUDA device are the products of the host, also for more rows than the grid
// has threads.
#include "engine/ops/loss/row_weights.h"

#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

using RowWeightsCuda = CudaTest;

TEST_F(RowWeightsCuda, MultiplyRows) {
  for (const std::int64_t rows : {0, 1, 257, 132 * 16 * 256 + 1000}) {
    std::vector<float> weights, values, expected;
    std::vector<double> exact, wide_expected;
    for (std::int64_t i = 0; i < rows; ++i) {
      exact.push_back(static_cast<double>(i % 5) / 3);
      weights.push_back(static_cast<float>(exact.back()));
      values.push_back(static_cast<float>(i % 7) - 3);
      expected.push_back(weights.back() * values.back());
      wide_expected.push_back(exact.back() * static_cast<double>(values.back()));
    }
    const DeviceOperand<double> on_device({rows}, exact);
    const auto found = to_device<float>({rows}, values);
    DeviceContext c;
    weigh_rows(c.context, on_device.view(), found.view());
    c.finish();
    EXPECT_EQ(found.values(), expected) << rows;
    const auto wide = to_device<double>({rows}, values);
    weigh_rows(c.context, on_device.view(), wide.view());
    c.finish();
    EXPECT_EQ(wide.values(), wide_expected) << rows;
  }
}

}  // namespace
}  // namespace engine::ops
