// Group normalization on a CUDA device against the float64 reference, for every storage.
#include "engine/ops/norm/group_norm.h"

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class GroupNormCuda : public CudaTest {};
TYPED_TEST_SUITE(GroupNormCuda, Storages);

template <class T>
void compare_group_norm(const Shape& shape, std::int64_t groups, Write write) {
  SCOPED_TRACE(shape.to_string() + ", " + std::to_string(groups) + " groups" +
               (write == Write::kAdd ? ", added" : ""));
  const Shape vector{shape[shape.rank() - 1]}, statistics_shape{2, shape[0], groups};
  Operand<float> x = random_operand(shape, 1);
  for (float& value : x.values) value = 3 * value + 2;
  const Operand<float> gamma = random_operand(vector, 2), beta = random_operand(vector, 3),
                       dy = random_operand(shape, 4), dx_start = random_operand(shape, 5),
                       dgamma_start = random_operand(vector, 6);
  Operand<double> wide_x = kept<T>(x), wide_gamma = widen(gamma), wide_beta = widen(beta),
                  wide_dy = kept<T>(dy), y(shape, 0), statistics(statistics_shape, 0),
                  dx = kept<T>(dx_start), dgamma = widen(dgamma_start), dbeta = widen(dgamma_start);
  Context host(1, 0);
  group_norm_forward(host.context, {.x = wide_x.view(),
                                    .gamma = wide_gamma.view(),
                                    .beta = wide_beta.view(),
                                    .groups = groups,
                                    .eps = 1e-5,
                                    .y = y.view(),
                                    .statistics = statistics.view()});
  group_norm_backward(host.context, {.x = wide_x.view(),
                                     .gamma = wide_gamma.view(),
                                     .statistics = statistics.view(),
                                     .dy = wide_dy.view(),
                                     .dgamma = dgamma.view(),
                                     .dbeta = dbeta.view(),
                                     .parameter_write = write,
                                     .dx = dx.view(),
                                     .dx_write = write});

  DeviceContext c(group_norm_scratch_bytes(shape, DTypeOf<T>::value, Device::Kind::kCuda));
  const std::vector<float> none(x.values.size(), NAN);
  const auto device_x = to_device<T>(shape, x.values), device_dy = to_device<T>(shape, dy.values),
             device_dx = to_device<T>(shape, dx_start.values), device_y = to_device<T>(shape, none),
             without = to_device<T>(shape, none);
  const auto device_gamma = to_device<float>(vector, gamma.values),
             device_beta = to_device<float>(vector, beta.values),
             device_statistics = to_device<float>(
                 statistics_shape, std::vector<float>(statistics.values.size(), NAN)),
             device_dgamma = to_device<float>(vector, dgamma_start.values),
             device_dbeta = to_device<float>(vector, dgamma_start.values);
  GroupNormForward forward{.x = device_x.view(),
                           .gamma = device_gamma.view(),
                           .beta = device_beta.view(),
                           .groups = groups,
                           .eps = 1e-5,
                           .y = device_y.view(),
                           .statistics = device_statistics.view()};
  group_norm_forward(c.context, forward);
  forward.y = without.view();
  forward.statistics = {};
  group_norm_forward(c.context, forward);
  GroupNormBackward backward{.x = device_x.view(),
                             .gamma = device_gamma.view(),
                             .statistics = device_statistics.view(),
                             .dy = device_dy.view(),
                             .dgamma = device_dgamma.view(),
                             .dbeta = device_dbeta.view(),
                             .parameter_write = write,
                             .dx = device_dx.view(),
                             .dx_write = write};
  group_norm_backward(c.context, backward);
  c.finish();
  EXPECT_LE(relative_error(as_floats(device_y.values()), y.values), storage_error<T>());
  EXPECT_EQ(as_floats(device_y.values()), as_floats(without.values()));
  EXPECT_LE(relative_error(device_statistics.values(), statistics.values), 1e-5);
  EXPECT_LE(relative_error(as_floats(device_dx.values()), dx.values, 1e-2), storage_error<T>());
  EXPECT_LE(relative_error(device_dgamma.values(), dgamma.values), 1e-5);
  EXPECT_LE(relative_error(device_dbeta.values(), dbeta.values), 1e-5);
  if (write == Write::kAdd) return;
  backward.dx = device_dy.view();  // dx over dy
  group_norm_backward(c.context, backward);
  c.finish();
  EXPECT_EQ(as_floats(device_dy.values()), as_floats(device_dx.values()));
}

TYPED_TEST(GroupNormCuda, AgreesWithTheReference) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    compare_group_norm<TypeParam>({0, 3, 3, 8}, 2, write);
    compare_group_norm<TypeParam>({1, 1, 1, 2}, 1, write);
    compare_group_norm<TypeParam>({2, 5, 7, 6}, 3, write);
    compare_group_norm<TypeParam>({3, 9, 9, 33}, 11, write);
    compare_group_norm<TypeParam>({2, 3, 3, 40}, 1, write);
    compare_group_norm<TypeParam>({3, 2, 2, 12}, 12, write);
    compare_group_norm<TypeParam>({5, 7, 130}, 10, write);
  }
}

// Stages of residual networks, a few samples of them: more rows than slices of the least length.
TYPED_TEST(GroupNormCuda, AgreesAtTheSizesOfModels) {
  compare_group_norm<TypeParam>({9, 32, 32, 16}, 4, Write::kAdd);
  compare_group_norm<TypeParam>({2, 28, 28, 64}, 32, Write::kOverwrite);
}

}  // namespace
}  // namespace engine::ops
