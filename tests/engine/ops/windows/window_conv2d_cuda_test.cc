// Convolutions of any window on a CUDA device for every storage, against their definition in f64 on
// the numbers that the storage keeps: forward, which a transposed convolution has as its backward
// pass, and the gradients.
#include "engine/ops/windows/window_conv2d.h"

#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/ops/windows/window_conv_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

struct Expected {
  Operand<double> y, dx, dweight, dbias;
};

// Operands rounded to T, and results that begin as zeros or as given.
template <class T>
Expected expected_results(const WindowConvCase& c, Write write) {
  const Shape vector{c.conv.out_channels};
  const Operand<double> x = kept<T>(random_operand(c.x(), 1)),
                        dy = kept<T>(random_operand(c.y(), 2)),
                        weight = kept<T>(random_operand(c.weight(), 3)),
                        bias = kept<float>(random_operand(vector, 4));
  const auto start = [&]<class Stored>(Stored, const Shape& shape) {
    return write == Write::kAdd ? kept<Stored>(output(shape, write)) : Operand<double>(shape, 0);
  };
  Expected r{start(T{}, c.y()), start(T{}, c.x()), start(StateOf<T>{}, c.weight()),
             start(StateOf<T>{}, vector)};
  const auto channels = static_cast<std::size_t>(c.conv.out_channels);
  for (std::size_t i = 0; i < r.y.values.size(); ++i) {
    if (write == Write::kOverwrite) r.y.values[i] += bias.values[i % channels];
    r.dbias.values[i % channels] += dy.values[i];
  }
  for_each_tap(c, [&](auto x_place, auto y_place, auto weight_place) {
    const auto from = static_cast<std::size_t>(x_place), to = static_cast<std::size_t>(y_place),
               by = static_cast<std::size_t>(weight_place);
    r.y.values[to] += x.values[from] * weight.values[by];
    r.dx.values[from] += dy.values[to] * weight.values[by];
    r.dweight.values[by] += x.values[from] * dy.values[to];
  });
  return r;
}

template <class T>
void expect_definition(const WindowConvCase& c, Write write) {
  const Shape vector{c.conv.out_channels};
  const auto x = to_device_as<T>(random_operand(c.x(), 1)),
             dy = to_device_as<T>(random_operand(c.y(), 2)),
             weight = to_device_as<T>(random_operand(c.weight(), 3)),
             y = to_device_as<T>(output(c.y(), write)), dx = to_device_as<T>(output(c.x(), write));
  const auto bias = to_device_as<StateOf<T>>(random_operand(vector, 4)),
             dweight = to_device_as<StateOf<T>>(output(c.weight(), write)),
             dbias = to_device_as<StateOf<T>>(output(vector, write));
  DeviceContext context(
      window_conv2d_scratch_bytes(c.conv, c.n, DTypeOf<T>::value, 1, engine::Device::Kind::kCuda));
  window_conv2d_forward(context.context,
                        {c.conv, x.view(), weight.view(), y.view(),
                         write == Write::kOverwrite ? bias.view() : TensorView{}, write});
  window_conv2d_backward_data(context.context,
                              {c.conv, dy.view(), weight.view(), dx.view(), write});
  window_conv2d_backward_weights(
      context.context, {c.conv, x.view(), dy.view(), dweight.view(), dbias.view(), write});
  context.finish();
  const Expected expected = expected_results<T>(c, write);
  // Each place of a window adds to dx, whose storage rounds every time.
  const double error = storage_error<T>();
  EXPECT_LE(relative_error(as_floats(y.values()), expected.y.values), error);
  EXPECT_LE(relative_error(as_floats(dx.values()), expected.dx.values), 4 * error);
  EXPECT_LE(relative_error(dweight.values(), expected.dweight.values), 2 * state_error<T>());
  EXPECT_LE(relative_error(dbias.values(), expected.dbias.values), 2 * state_error<T>());
}

template <class T>
class WindowConv2dCuda : public CudaTest {};
TYPED_TEST_SUITE(WindowConv2dCuda, Storages);

TYPED_TEST(WindowConv2dCuda, IsItsDefinition) {
  for (std::size_t i = 0; i < kWindowConvs.size(); ++i)
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE("case " + std::to_string(i));
      expect_definition<TypeParam>(kWindowConvs[i], write);
    }
}

// Groups of several channels with more outputs than a block of the product has.
TYPED_TEST(WindowConv2dCuda, WideGroupsAreTheirDefinition) {
  const WindowConvCase wide{2, {{{6, 3, 2, 2, 1, 3}, {9, 2, 1, 3, 2, 0}, 34}, 2 * 70, 2}};
  expect_definition<TypeParam>(wide, Write::kOverwrite);
}

}  // namespace
}  // namespace engine::ops
