// Batch normalization on a CUDA device: every phase against float64 on the numbers that the storage
// keeps, statistics that must not cancel, empty batches, and the same bits in every run.
#include "engine/ops/norm/batch_norm.h"

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class BatchNormCuda : public CudaTest {};
TYPED_TEST_SUITE(BatchNormCuda, Storages);

struct Options {
  bool relu, residual;
  Write write;
};

// Numbers that T keeps exactly, with a mean that is not 0.
template <class T>
Operand<float> data(const Shape& shape, std::uint32_t seed) {
  Operand<float> x = random_operand(shape, seed);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += static_cast<float>(i % 7) - 2;
  x.values = as_floats(stored<T>(x.values));
  return x;
}

// Forward: statistics, finish, normalize. Each phase of the reference goes on from what the device
// has found, so that a difference belongs to one phase.
template <class T>
void compare_batch_norm(const Shape& shape, const Options& o) {
  const std::int64_t channels = shape[shape.rank() - 1], rows = shape.count() / channels;
  const Shape per_channel{channels};
  const Operand<float> x = data<T>(shape, 1), residual = data<T>(shape, 2), dy = data<T>(shape, 3),
                       start = data<T>(shape, 4);
  const Operand<float> gamma = random_operand(per_channel, 5),
                       beta = random_operand(per_channel, 6), running = data<float>(per_channel, 7),
                       parameters = random_operand(per_channel, 8);
  Operand<float> variance = running;
  for (float& v : variance.values) v = v * v + 0.1f;

  DeviceContext c(
      batch_norm_scratch_bytes(rows, channels, DTypeOf<T>::value, 1, Device::Kind::kCuda));
  const auto device_x = to_device<T>(shape, x.values),
             device_residual = to_device<T>(shape, residual.values),
             device_dy = to_device<T>(shape, dy.values), y = to_device<T>(shape, start.values),
             dx = to_device<T>(shape, start.values), dresidual = to_device<T>(shape, start.values);
  const DeviceOperand<float> device_gamma(per_channel, gamma.values),
      device_beta(per_channel, beta.values), mean(per_channel, gamma.values),
      inverse_std(per_channel, gamma.values), running_mean(per_channel, running.values),
      running_var(per_channel, variance.values), dgamma(per_channel, parameters.values),
      dbeta(per_channel, parameters.values);
  const DeviceOperand<double> sums(
      {2, channels}, std::vector<double>(static_cast<std::size_t>(2 * channels), NAN)),
      backward_sums({2, channels}, sums.values());
  const TensorView absent{}, y_of_relu = o.relu ? y.view() : absent;
  batch_norm_statistics(c.context, device_x.view(), sums.view());
  batch_norm_finish_statistics(c.context, {.sums = sums.view(),
                                           .rows = rows,
                                           .eps = 1e-5,
                                           .momentum = 0.1,
                                           .mean = mean.view(),
                                           .inverse_std = inverse_std.view(),
                                           .running_mean = running_mean.view(),
                                           .running_var = running_var.view()});
  batch_norm_normalize(c.context, {.x = device_x.view(),
                                   .mean = mean.view(),
                                   .inverse_std = inverse_std.view(),
                                   .gamma = device_gamma.view(),
                                   .beta = device_beta.view(),
                                   .residual = o.residual ? device_residual.view() : absent,
                                   .relu = o.relu,
                                   .y = y.view()});
  batch_norm_backward_sums(c.context, {.x = device_x.view(),
                                       .y = y_of_relu,
                                       .dy = device_dy.view(),
                                       .mean = mean.view(),
                                       .inverse_std = inverse_std.view(),
                                       .sums = backward_sums.view(),
                                       .dresidual = o.residual ? dresidual.view() : absent,
                                       .write_residual = o.write});
  batch_norm_backward_parameters(c.context, {.sums = backward_sums.view(),
                                             .dgamma = dgamma.view(),
                                             .dbeta = dbeta.view(),
                                             .write = o.write});
  batch_norm_backward_data(c.context, {.x = device_x.view(),
                                       .y = y_of_relu,
                                       .dy = device_dy.view(),
                                       .mean = mean.view(),
                                       .inverse_std = inverse_std.view(),
                                       .gamma = device_gamma.view(),
                                       .sums = backward_sums.view(),
                                       .rows = rows,
                                       .dx = dx.view(),
                                       .write = o.write});
  c.finish();

  Context host(1, 0);
  Operand<double> wide_x = widen(x), wide_residual = widen(residual), wide_dy = widen(dy),
                  wide_y(shape, 0), wide_dx = widen(start), wide_dresidual = widen(start),
                  wide_gamma = widen(gamma), wide_beta = widen(beta), wide_mean(per_channel, 0),
                  wide_inverse(per_channel, 0), wide_running = widen(running),
                  wide_variance = widen(variance), wide_dgamma = widen(parameters),
                  wide_dbeta = widen(parameters), wide_sums({2, channels}, 0),
                  wide_backward({2, channels}, 0);
  batch_norm_statistics(host.context, wide_x.view(), wide_sums.view());
  const double exact = 1e-5;
  EXPECT_LT(relative_error(sums.values(), wide_sums.values), exact);
  batch_norm_finish_statistics(host.context, {.sums = wide_sums.view(),
                                              .rows = rows,
                                              .eps = 1e-5,
                                              .momentum = 0.1,
                                              .mean = wide_mean.view(),
                                              .inverse_std = wide_inverse.view(),
                                              .running_mean = wide_running.view(),
                                              .running_var = wide_variance.view()});
  EXPECT_LT(relative_error(mean.values(), wide_mean.values), exact);
  EXPECT_LT(relative_error(inverse_std.values(), wide_inverse.values), exact);
  EXPECT_LT(relative_error(running_mean.values(), wide_running.values), exact);
  EXPECT_LT(relative_error(running_var.values(), wide_variance.values), exact);
  const std::vector<float> found_mean = mean.values(), found_inverse = inverse_std.values();
  wide_mean.values.assign(found_mean.begin(), found_mean.end());
  wide_inverse.values.assign(found_inverse.begin(), found_inverse.end());
  batch_norm_normalize(host.context, {.x = wide_x.view(),
                                      .mean = wide_mean.view(),
                                      .inverse_std = wide_inverse.view(),
                                      .gamma = wide_gamma.view(),
                                      .beta = wide_beta.view(),
                                      .residual = o.residual ? wide_residual.view() : absent,
                                      .relu = o.relu,
                                      .y = wide_y.view()});
  EXPECT_LT(relative_error(as_floats(y.values()), wide_y.values), storage_error<T>());
  // The mask is that of the stored output.
  const std::vector<float> found_y = as_floats(y.values());
  wide_y.values.assign(found_y.begin(), found_y.end());
  batch_norm_backward_sums(host.context, {.x = wide_x.view(),
                                          .y = o.relu ? wide_y.view() : absent,
                                          .dy = wide_dy.view(),
                                          .mean = wide_mean.view(),
                                          .inverse_std = wide_inverse.view(),
                                          .sums = wide_backward.view(),
                                          .dresidual = o.residual ? wide_dresidual.view() : absent,
                                          .write_residual = o.write});
  // Sums may cancel: against what their terms could amount to.
  double largest_inverse = 1;
  for (const float each : found_inverse) largest_inverse = std::max<double>(largest_inverse, each);
  const double magnitude = static_cast<double>(rows) * (rows < 4 ? largest_inverse : 1);
  EXPECT_LT(relative_error(backward_sums.values(), wide_backward.values, magnitude), exact);
  const std::vector<double> found_sums = backward_sums.values();
  wide_backward.values = found_sums;
  batch_norm_backward_parameters(host.context, {.sums = wide_backward.view(),
                                                .dgamma = wide_dgamma.view(),
                                                .dbeta = wide_dbeta.view(),
                                                .write = o.write});
  EXPECT_LT(relative_error(dgamma.values(), wide_dgamma.values), exact);
  EXPECT_LT(relative_error(dbeta.values(), wide_dbeta.values), exact);
  batch_norm_backward_data(host.context, {.x = wide_x.view(),
                                          .y = o.relu ? wide_y.view() : absent,
                                          .dy = wide_dy.view(),
                                          .mean = wide_mean.view(),
                                          .inverse_std = wide_inverse.view(),
                                          .gamma = wide_gamma.view(),
                                          .sums = wide_backward.view(),
                                          .rows = rows,
                                          .dx = wide_dx.view(),
                                          .write = o.write});
  // One row has an inverse_std of 1 / sqrt(eps), times which what cancels in float64 leaves
  // rounding.
  EXPECT_LT(
      relative_error(as_floats(dx.values()), wide_dx.values, rows < 4 ? largest_inverse : 1e-30),
      storage_error<T>());
  if (o.residual) {
    EXPECT_LE(relative_error(as_floats(dresidual.values()), wide_dresidual.values),
              o.write == Write::kAdd ? storage_error<T>() : 0);
  } else {
    EXPECT_EQ(as_floats(dresidual.values()), start.values);
  }
}

TYPED_TEST(BatchNormCuda, EveryPhaseAgreesWithFloat64) {
  const Shape shapes[] = {{1, 1},         {1, 8},         {2, 3},         {7, 17},   {3, 5, 6, 10},
                          {2, 9, 7, 16},  {2, 9, 7, 24},  {4, 8, 8, 64},  {1000, 4}, {300, 33},
                          {2, 4, 4, 512}, {5, 3, 3, 264}, {2, 17, 13, 32}};
  for (const Shape& shape : shapes)
    for (int k = 0; k < 8; ++k) {
      SCOPED_TRACE(shape.to_string() + " options " + std::to_string(k));
      compare_batch_norm<TypeParam>(
          shape, {(k & 1) != 0, (k & 2) != 0, (k & 4) != 0 ? Write::kAdd : Write::kOverwrite});
    }
}

// The first stages of residual networks on small images, a few samples of them: many blocks,
// several rounds a thread.
TYPED_TEST(BatchNormCuda, AgreesAtTheSizesOfModels) {
  for (const Shape& shape :
       {Shape{8, 32, 32, 64}, Shape{3, 56, 56, 64}, Shape{16, 8, 8, 256}, Shape{60'000, 3}}) {
    SCOPED_TRACE(shape.to_string());
    compare_batch_norm<TypeParam>(shape, {true, true, Write::kOverwrite});
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
  DeviceContext c(batch_norm_scratch_bytes(rows, channels, DType::kBF16, 1, Device::Kind::kCuda));
  batch_norm_statistics(c.context, aligned.view(), a.view());
  batch_norm_statistics(c.context, view, b.view());
  c.finish();
  EXPECT_LT(relative_error(b.values(), a.values()), 1e-6);
}

// A mean of 10^4 with a deviation of 0.01 leaves float32 about ten steps of variation: the sums
// must not lose them.
TEST_F(BatchNormCudaOnce, StatisticsDoNotCancel) {
  for (const std::int64_t channels : {1, 5, 16, 33}) {
    Operand<float> x = random_operand({20'000, channels}, 3);
    for (float& value : x.values) value = 1e4f + 0.01f * value;
    for (std::int64_t c = 0; c < channels; ++c)
      x.values[static_cast<std::size_t>(c)] = 1e4f + 0.5f;  // an outlier as first row
    Operand<double> wide = widen(x), expected({2, channels}, 0);
    Context host(1, 0);
    batch_norm_statistics(host.context, wide.view(), expected.view());
    DeviceContext c(
        batch_norm_scratch_bytes(20'000, channels, DType::kF32, 1, Device::Kind::kCuda));
    const DeviceOperand<float> device_x(x.shape, x.values);
    const DeviceOperand<double> sums({2, channels}, std::vector<double>(expected.values.size()));
    batch_norm_statistics(c.context, device_x.view(), sums.view());
    c.finish();
    EXPECT_EQ(far_apart(sums.values(), expected.values, 1e-6, 0), "") << channels;
  }
}

TEST_F(BatchNormCudaOnce, NoRowsGiveZeroSumsAndLeaveRunningStatistics) {
  const Shape none{0, 2, 2, 3};
  const std::vector<float> before{0.5f, 0.25f, 2};
  const DeviceOperand<bf16> x(none, {});
  const DeviceOperand<float> mean({3}, before), inverse_std({3}, before), running_mean({3}, before),
      running_var({3}, before), dgamma({3}, before), dbeta({3}, before);
  const DeviceOperand<double> sums({2, 3}, std::vector<double>(6, 5));
  DeviceContext c(batch_norm_scratch_bytes(0, 3, DType::kBF16, 1, Device::Kind::kCuda));
  batch_norm_statistics(c.context, x.view(), sums.view());
  c.finish();
  EXPECT_EQ(sums.values(), std::vector<double>(6, 0.0));
  batch_norm_finish_statistics(c.context, {.sums = sums.view(),
                                           .rows = 0,
                                           .eps = 1e-5,
                                           .momentum = 0.1,
                                           .mean = mean.view(),
                                           .inverse_std = inverse_std.view(),
                                           .running_mean = running_mean.view(),
                                           .running_var = running_var.view()});
  batch_norm_normalize(c.context, {.x = x.view(),
                                   .mean = mean.view(),
                                   .inverse_std = inverse_std.view(),
                                   .gamma = mean.view(),
                                   .beta = mean.view(),
                                   .relu = true,
                                   .y = x.view()});
  batch_norm_backward_sums(c.context, {.x = x.view(),
                                       .y = x.view(),
                                       .dy = x.view(),
                                       .mean = mean.view(),
                                       .inverse_std = inverse_std.view(),
                                       .sums = sums.view()});
  batch_norm_backward_parameters(
      c.context,
      {.sums = sums.view(), .dgamma = dgamma.view(), .dbeta = dbeta.view(), .write = Write::kAdd});
  batch_norm_backward_data(c.context, {.x = x.view(),
                                       .y = x.view(),
                                       .dy = x.view(),
                                       .mean = mean.view(),
                                       .inverse_std = inverse_std.view(),
                                       .gamma = mean.view(),
                                       .sums = sums.view(),
                                       .rows = 0,
                                       .dx = x.view()});
  c.finish();
  EXPECT_EQ(mean.values(), std::vector<float>(3, 0.f));
  EXPECT_EQ(far_apart(inverse_std.values(), std::vector<double>(3, 1 / std::sqrt(1e-5)), 1e-6, 0),
            "");
  for (const auto* each : {&running_mean, &running_var, &dgamma, &dbeta})
    EXPECT_EQ(each->values(), before);
}

TEST_F(BatchNormCudaOnce, InferenceTakesTheRunningStatistics) {
  const std::int64_t channels = 300;
  Operand<float> running_mean = random_operand({channels}, 1),
                 running_var = random_operand({channels}, 2);
  for (float& v : running_var.values) v = v * v;
  Operand<double> wide_mean = widen(running_mean), wide_var = widen(running_var),
                  expected_mean({channels}, 0), expected_inverse({channels}, 0);
  Context host(1, 0);
  batch_norm_from_running(host.context, {.running_mean = wide_mean.view(),
                                         .running_var = wide_var.view(),
                                         .eps = 1e-5,
                                         .mean = expected_mean.view(),
                                         .inverse_std = expected_inverse.view()});
  const DeviceOperand<float> device_mean({channels}, running_mean.values),
      device_var({channels}, running_var.values), mean({channels}, running_var.values),
      inverse_std({channels}, running_var.values);
  DeviceContext c;
  batch_norm_from_running(c.context, {.running_mean = device_mean.view(),
                                      .running_var = device_var.view(),
                                      .eps = 1e-5,
                                      .mean = mean.view(),
                                      .inverse_std = inverse_std.view()});
  c.finish();
  EXPECT_LE(relative_error(mean.values(), expected_mean.values), 0);
  EXPECT_EQ(far_apart(inverse_std.values(), expected_inverse.values, 1e-6, 0), "");
}

// Scratch that was sized for a larger batch does for every smaller one.
TEST_F(BatchNormCudaOnce, ScratchGrowsWithTheRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t channels : {1, 3, 8, 17, 64, 200, 512, 2048}) {
      std::size_t before = 0;
      for (std::int64_t rows = 0; rows < 300'000; rows += 1 + rows / 3) {
        const std::size_t bytes =
            batch_norm_scratch_bytes(rows, channels, dtype, 1, Device::Kind::kCuda);
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
  DeviceContext c(batch_norm_scratch_bytes(5000, 20, DType::kF32, 1, Device::Kind::kCuda));
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
  DeviceContext c(batch_norm_scratch_bytes(4, 3, DType::kBF16, 1, Device::Kind::kCuda)), bare;
  const auto x = to_device<bf16>({4, 3}, std::vector<float>(12)),
             half = to_device<bf16>({3}, std::vector<float>(3));
  const DeviceOperand<float> three({3}, std::vector<float>(3));
  const DeviceOperand<double> sums({2, 3}, std::vector<double>(6));
  const auto normalize = [&](const TensorView& gamma) {
    batch_norm_normalize(c.context, {.x = x.view(),
                                     .mean = three.view(),
                                     .inverse_std = three.view(),
                                     .gamma = gamma,
                                     .beta = three.view(),
                                     .y = x.view()});
  };
  normalize(three.view());
  EXPECT_THROW(normalize(half.view()), ShapeError);  // parameters of one dimension are f32
  EXPECT_THROW(batch_norm_statistics(bare.context, x.view(), sums.view()), Error);
  EXPECT_THROW(batch_norm_from_running(c.context, {.running_mean = half.view(),
                                                   .running_var = half.view(),
                                                   .eps = 1e-5,
                                                   .mean = half.view(),
                                                   .inverse_std = half.view()}),
               Error);
  c.finish();
}

}  // namespace
}  // namespace engine::ops
