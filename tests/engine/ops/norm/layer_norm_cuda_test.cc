// Layer normalization on a CUDA device against the float64 reference, for every storage, with
// aligned rows and others.
#include "engine/ops/norm/layer_norm.h"

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

constexpr double kEps = 1e-5;

template <class T>
class LayerNormCuda : public CudaTest {};
TYPED_TEST_SUITE(LayerNormCuda, Storages);

template <class T>
void compare_layer_norm(std::int64_t rows, std::int64_t width, Write write) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width) +
               (write == Write::kAdd ? ", added" : ""));
  const Shape shape{rows, width}, vector{width};
  Operand<float> x = random_operand(shape, 1);
  for (float& value : x.values) value = 3 * value + 2;
  const Operand<float> gamma = random_operand(vector, 2), beta = random_operand(vector, 3),
                       dy = random_operand(shape, 4), dx_start = random_operand(shape, 5),
                       dgamma_start = random_operand(vector, 6);
  Operand<double> wide_x = kept<T>(x), wide_gamma = widen(gamma), wide_beta = widen(beta),
                  wide_dy = kept<T>(dy), y(shape, 0), statistics({2, rows}, 0),
                  dx = kept<T>(dx_start), dgamma = widen(dgamma_start), dbeta = widen(dgamma_start);
  Context host(1, 0);
  layer_norm_forward(host.context, {.x = wide_x.view(),
                                    .gamma = wide_gamma.view(),
                                    .beta = wide_beta.view(),
                                    .eps = kEps,
                                    .y = y.view(),
                                    .statistics = statistics.view()});
  layer_norm_backward_data(host.context, {.x = wide_x.view(),
                                          .gamma = wide_gamma.view(),
                                          .statistics = statistics.view(),
                                          .dy = wide_dy.view(),
                                          .dx = dx.view(),
                                          .write = write});
  layer_norm_backward_parameters(host.context, {.x = wide_x.view(),
                                                .statistics = statistics.view(),
                                                .dy = wide_dy.view(),
                                                .dgamma = dgamma.view(),
                                                .dbeta = dbeta.view(),
                                                .write = write});

  DeviceContext c(layer_norm_scratch_bytes(width, Device::Kind::kCuda));
  const auto device_x = to_device<T>(shape, x.values), device_dy = to_device<T>(shape, dy.values),
             device_dx = to_device<T>(shape, dx_start.values),
             device_y = to_device<T>(shape, std::vector<float>(x.values.size(), NAN)),
             without = to_device<T>(shape, std::vector<float>(x.values.size(), NAN));
  const auto device_gamma = to_device<float>(vector, gamma.values),
             device_beta = to_device<float>(vector, beta.values),
             device_statistics =
                 to_device<float>({2, rows}, std::vector<float>(statistics.values.size(), NAN)),
             device_dgamma = to_device<float>(vector, dgamma_start.values),
             device_dbeta = to_device<float>(vector, dgamma_start.values);
  layer_norm_forward(c.context, {.x = device_x.view(),
                                 .gamma = device_gamma.view(),
                                 .beta = device_beta.view(),
                                 .eps = kEps,
                                 .y = device_y.view(),
                                 .statistics = device_statistics.view()});
  layer_norm_forward(c.context, {.x = device_x.view(),
                                 .gamma = device_gamma.view(),
                                 .beta = device_beta.view(),
                                 .eps = kEps,
                                 .y = without.view()});
  layer_norm_backward_data(c.context, {.x = device_x.view(),
                                       .gamma = device_gamma.view(),
                                       .statistics = device_statistics.view(),
                                       .dy = device_dy.view(),
                                       .dx = device_dx.view(),
                                       .write = write});
  layer_norm_backward_parameters(c.context, {.x = device_x.view(),
                                             .statistics = device_statistics.view(),
                                             .dy = device_dy.view(),
                                             .dgamma = device_dgamma.view(),
                                             .dbeta = device_dbeta.view(),
                                             .write = write});
  const auto both_dx = to_device<T>(shape, dx_start.values);
  const auto both_dgamma = to_device<float>(vector, dgamma_start.values),
             both_dbeta = to_device<float>(vector, dgamma_start.values);
  layer_norm_backward(c.context, {.x = device_x.view(),
                                  .gamma = device_gamma.view(),
                                  .statistics = device_statistics.view(),
                                  .dy = device_dy.view(),
                                  .dgamma = both_dgamma.view(),
                                  .dbeta = both_dbeta.view(),
                                  .parameter_write = write,
                                  .dx = both_dx.view(),
                                  .dx_write = write});
  if (write == Write::kOverwrite)  // dx over dy
    layer_norm_backward_data(c.context, {.x = device_x.view(),
                                         .gamma = device_gamma.view(),
                                         .statistics = device_statistics.view(),
                                         .dy = device_dy.view(),
                                         .dx = device_dy.view(),
                                         .write = write});
  c.finish();
  EXPECT_LE(relative_error(as_floats(device_y.values()), y.values), storage_error<T>());
  EXPECT_EQ(as_floats(device_y.values()), as_floats(without.values()));
  EXPECT_LE(relative_error(device_statistics.values(), statistics.values), 1e-5);
  EXPECT_LE(relative_error(as_floats(device_dx.values()), dx.values, 1e-2), storage_error<T>());
  EXPECT_LE(relative_error(device_dgamma.values(), dgamma.values), 1e-5);
  EXPECT_LE(relative_error(device_dbeta.values(), dbeta.values), 1e-5);
  EXPECT_LE(relative_error(as_floats(both_dx.values()), dx.values, 1e-2), storage_error<T>());
  EXPECT_LE(relative_error(both_dgamma.values(), dgamma.values), 1e-5);
  EXPECT_LE(relative_error(both_dbeta.values(), dbeta.values), 1e-5);
  if (write == Write::kOverwrite) {
    EXPECT_EQ(as_floats(device_dy.values()), as_floats(device_dx.values()));
  }
}

TYPED_TEST(LayerNormCuda, AgreesWithTheReference) {
  for (const std::int64_t width : {1, 48, 65, 128, 384, 520, 777, 1024, 2304})
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      compare_layer_norm<TypeParam>(width > 500 ? 3 : 21, width, write);
}

TYPED_TEST(LayerNormCuda, SumsOverManyRowsAndOverNone) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    compare_layer_norm<TypeParam>(0, 48, write);
    compare_layer_norm<TypeParam>(1100, 40, write);
  }
  compare_layer_norm<TypeParam>(8300, 8, Write::kAdd);  // more rows than slices of the least length
}

}  // namespace
}  // namespace engine::ops
