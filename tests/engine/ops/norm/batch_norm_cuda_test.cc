// Batch normalization on a CUDA device: every phase against float64 on the numbers that the storage
// keeps, statistics that must not cancel, empty batches, and the same bits in every run.
#include "engine/ops/norm/batch_norm.h"

#include <functional>

#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/ops/norm/norm_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class BatchNormCuda : public CudaTest {};
TYPED_TEST_SUITE(BatchNormCuda, Storages);

// Numbers that T keeps exactly, with a mean that is not 0.
template <class T>
Operand<float> data(const Shape& shape, std::uint32_t seed) {
  Operand<float> x = shifted_operand(shape, seed);
  for (float& value : x.values) value = static_cast<float>(kept_number<T>(value));
  return x;
}

// Each phase of the reference goes on from what the device has found, so that a difference belongs
// to one phase.
template <class T>
void compare_batch_norm(const Shape& shape, bool relu, bool with_residual, Write write) {
  HostBatchNorm start = batch_norm_of(shape, relu, with_residual, write, data<T>);
  if (!with_residual) start.dresidual = data<T>(shape, 4);
  const std::int64_t rows = start.rows();
  auto device = start.as(to_device_as<T>, to_device_as<StateOf<T>>, to_device_as<double, double>);
  DeviceContext c(
      batch_norm_scratch_bytes(rows, start.gamma.shape[0], DTypeOf<T>::value, 1, kDevice.kind));
  device.run(c.context);
  c.finish();

  Context host(1, 0);
  WideBatchNorm wide = start.as(widen, widen, std::identity());
  wide.find_sums(host.context);
  const double exact = state_error<T>();
  EXPECT_LT(relative_error(device.sums.values(), wide.sums.values), exact);
  wide.finish_statistics(host.context);
  EXPECT_LT(relative_error(device.mean.values(), wide.mean.values), exact);
  EXPECT_LT(relative_error(device.inverse_std.values(), wide.inverse_std.values), exact);
  EXPECT_LT(relative_error(device.running_mean.values(), wide.running_mean.values), exact);
  EXPECT_LT(relative_error(device.running_var.values(), wide.running_var.values), exact);
  const auto mean = device.mean.values(), inverse = device.inverse_std.values(),
             y = as_floats(device.y.values());
  wide.mean.values.assign(mean.begin(), mean.end());
  wide.inverse_std.values.assign(inverse.begin(), inverse.end());
  wide.normalize(host.context);
  EXPECT_LT(relative_error(y, wide.y.values), storage_error<T>());
  wide.y.values.assign(y.begin(), y.end());  // the mask is that of the stored output
  wide.find_backward_sums(host.context);
  // Sums may cancel: against what their terms could amount to.
  double largest_inverse = 1;
  for (const double each : inverse) largest_inverse = std::max(largest_inverse, each);
  const double magnitude = static_cast<double>(rows) * (rows < 4 ? largest_inverse : 1);
  EXPECT_LT(relative_error(device.backward_sums.values(), wide.backward_sums.values, magnitude),
            exact);
  wide.backward_sums.values = device.backward_sums.values();
  wide.backward_parameters(host.context);
  EXPECT_LT(relative_error(device.dgamma.values(), wide.dgamma.values), exact);
  EXPECT_LT(relative_error(device.dbeta.values(), wide.dbeta.values), exact);
  wide.backward_data(host.context, rows);
  // One row has an inverse_std of 1 / sqrt(eps), times which what cancels in float64 leaves
  // rounding.
  EXPECT_LT(relative_error(as_floats(device.dx.values()), wide.dx.values,
                           rows < 4 ? largest_inverse : 1e-30),
            storage_error<T>());
  if (with_residual) {
    EXPECT_LE(relative_error(as_floats(device.dresidual.values()), wide.dresidual.values),
              write == Write::kAdd ? storage_error<T>() : 0);
  } else {
    EXPECT_LE(relative_error(as_floats(device.dresidual.values()), widen(start.dresidual).values),
              0);
  }
}

TYPED_TEST(BatchNormCuda, EveryPhaseAgreesWithFloat64) {
  const Shape shapes[] = {{1, 1},         {1, 8},         {2, 3},         {7, 17},   {3, 5, 6, 10},
                          {2, 9, 7, 16},  {2, 9, 7, 24},  {4, 8, 8, 64},  {1000, 4}, {300, 33},
                          {2, 4, 4, 512}, {5, 3, 3, 264}, {2, 17, 13, 32}};
  for (const Shape& shape : shapes)
    for (int k = 0; k < 8; ++k) {
      SCOPED_TRACE(shape.to_string() + " options " + std::to_string(k));
      compare_batch_norm<TypeParam>(shape, k & 1, k & 2, k & 4 ? Write::kAdd : Write::kOverwrite);
    }
}

// The first stages of residual networks on small images, a few samples of them: many blocks,
// several rounds a thread.
TYPED_TEST(BatchNormCuda, AgreesAtTheSizesOfModels) {
  for (const Shape& shape :
       {Shape{8, 32, 32, 64}, Shape{3, 56, 56, 64}, Shape{16, 8, 8, 256}, Shape{60'000, 3}}) {
    SCOPED_TRACE(shape.to_string());
    compare_batch_norm<TypeParam>(shape, true, true, Write::kOverwrite);
  }
}

using BatchNormCudaOnce = CudaTest;

// Single elements where an operand does not begin at a multiple of 16 bytes: the same sums as packs
// give, to rounding.
TEST_F(BatchNormCudaOnce, TakesOperandsThatAreNotAligned) {
  const std::int64_t rows = 37, channels = 16;
  const Operand<float> x = data<bf16>({rows, channels}, 1);
  std::vector<float> behind{9};
  behind.insert(behind.end(), x.values.begin(), x.values.end());
  const auto aligned = to_device<bf16>(x.shape, x.values),
             shifted = to_device<bf16>({rows * channels + 1}, behind);
  TensorView view = aligned.view();
  view.data = static_cast<bf16*>(shifted.view().data) + 1;
  const DeviceOperand<double> a({2, channels}, std::vector<double>(32)),
      b({2, channels}, std::vector<double>(32));
  DeviceContext c(batch_norm_scratch_bytes(rows, channels, DType::kBF16, 1, kDevice.kind));
  batch_norm_statistics(c.context, aligned.view(), a.view());
  batch_norm_statistics(c.context, view, b.view());
  c.finish();
  EXPECT_LT(relative_error(b.values(), a.values()), 1e-6);
}

TEST_F(BatchNormCudaOnce, StatisticsDoNotCancel) {
  for (const std::int64_t channels : {1, 5, 16, 33}) {
    const Operand<float> x = canceling_operand(channels);
    Operand<double> wide = widen(x), expected({2, channels}, 0);
    Context host(1, 0);
    batch_norm_statistics(host.context, wide.view(), expected.view());
    DeviceContext c(batch_norm_scratch_bytes(20'000, channels, DType::kF32, 1, kDevice.kind));
    const DeviceOperand<float> device_x(x.shape, x.values);
    const DeviceOperand<double> sums({2, channels}, std::vector<double>(expected.values.size()));
    batch_norm_statistics(c.context, device_x.view(), sums.view());
    c.finish();
    EXPECT_EQ(far_apart(sums.values(), expected.values, 1e-6, 0), "") << channels;
  }
}

TEST_F(BatchNormCudaOnce, NoRowsGiveZeroSumsAndLeaveRunningStatistics) {
  const HostBatchNorm start = batch_norm_of({0, 2, 2, 3}, true, false, Write::kAdd, random_operand);
  auto device = start.as(to_device_as<bf16>, to_device_as<float>, to_device_as<double, double>);
  DeviceContext c(batch_norm_scratch_bytes(0, 3, DType::kBF16, 1, kDevice.kind));
  device.run(c.context);
  c.finish();
  EXPECT_EQ(device.sums.values(), std::vector<double>(6, 0.0));
  EXPECT_EQ(device.mean.values(), std::vector<float>(3, 0.f));
  EXPECT_EQ(
      far_apart(device.inverse_std.values(), std::vector<double>(3, 1 / std::sqrt(1e-5)), 1e-6, 0),
      "");
  EXPECT_EQ(device.running_mean.values(), start.running_mean.values);
  EXPECT_EQ(device.running_var.values(), start.running_var.values);
  EXPECT_EQ(device.dgamma.values(), start.dgamma.values);
  EXPECT_EQ(device.dbeta.values(), start.dbeta.values);
}

TEST_F(BatchNormCudaOnce, InferenceTakesTheRunningStatistics) {
  const HostBatchNorm start =
      batch_norm_of({1, 300}, false, false, Write::kOverwrite, random_operand);
  WideBatchNorm wide = start.as(widen, widen, std::identity());
  auto device = start.as(to_device_as<float>, to_device_as<float>, to_device_as<double, double>);
  Context host(1, 0);
  wide.from_running(host.context);
  DeviceContext c;
  device.from_running(c.context);
  c.finish();
  EXPECT_LE(relative_error(device.mean.values(), wide.mean.values), 0);
  EXPECT_EQ(far_apart(device.inverse_std.values(), wide.inverse_std.values, 1e-6, 0), "");
}

// Scratch that was sized for a larger batch does for every smaller one.
TEST_F(BatchNormCudaOnce, ScratchGrowsWithTheRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64})
    for (const std::int64_t channels : {1, 3, 8, 17, 64, 200, 512, 2048}) {
      std::size_t before = 0;
      for (std::int64_t rows = 0; rows < 300'000; rows += 1 + rows / 3) {
        const std::size_t bytes = batch_norm_scratch_bytes(rows, channels, dtype, 1, kDevice.kind);
        EXPECT_GE(bytes, before) << rows << " rows of " << channels;
        before = bytes;
      }
    }
}

TEST_F(BatchNormCudaOnce, TheSameBitsInEveryRunAndANanStaysInItsChannel) {
  Operand<float> x = random_operand({5000, 20}, 1);
  x.values[20 * 1234 + 4] = std::nanf("");
  const DeviceOperand<float> device_x(x.shape, x.values);
  const DeviceOperand<double> a({2, 20}, std::vector<double>(40)),
      b({2, 20}, std::vector<double>(40));
  DeviceContext c(batch_norm_scratch_bytes(5000, 20, DType::kF32, 1, kDevice.kind));
  batch_norm_statistics(c.context, device_x.view(), a.view());
  batch_norm_statistics(c.context, device_x.view(), b.view());
  c.finish();
  const std::vector<double> found = a.values(), again = b.values();
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::isnan(found[i]), i % 20 == 4) << i;
    if (i % 20 != 4) {
      EXPECT_EQ(found[i], again[i]);
    }
  }
}

TEST_F(BatchNormCudaOnce, RefusesOperandsThatDoNotFit) {
  const HostBatchNorm start =
      batch_norm_of({4, 3}, false, false, Write::kOverwrite, random_operand);
  DeviceContext c(batch_norm_scratch_bytes(4, 3, DType::kBF16, 1, kDevice.kind)), bare;
  auto right = start.as(to_device_as<bf16>, to_device_as<float>, to_device_as<double, double>);
  right.normalize(c.context);
  EXPECT_THROW(right.find_sums(bare.context), Error);
  // Parameters of one dimension are f32.
  auto half = start.as(to_device_as<bf16>, to_device_as<bf16>, to_device_as<double, double>);
  EXPECT_THROW(
      batch_norm_normalize(
          c.context, {right.x.view(), right.mean.view(), right.inverse_std.view(),
                      half.gamma.view(), right.beta.view(), TensorView{}, false, right.y.view()}),
      ShapeError);
  EXPECT_THROW(half.from_running(c.context), Error);
  c.finish();
}

}  // namespace
}  // namespace engine::ops
