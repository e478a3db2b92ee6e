// Pooling on a CUDA device against float64: odd windows, ceil_mode, ties, NaNs, and sizes of
// models.
#include "engine/ops/pool/pool2d.h"

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class Pool2dCuda : public CudaTest {};
TYPED_TEST_SUITE(Pool2dCuda, Storages);

const Pool2dGeometry kGeometries[] = {
    {28, 28, 16, 2, 2, 0},     {5, 7, 3, 2, 2, 0},          {4, 4, 33, 2, 2, 0},
    {3, 2, 1, 2, 2, 0},        {2, 3, 8, 2, 2, 0},          {6, 5, 10, 3, 2, 1},
    {7, 7, 17, 3, 1, 1},       {9, 4, 5, 2, 3, 1},          {5, 5, 4, 5, 5, 2},
    {15, 15, 7, 15, 1, 7},     {6, 6, 24, 3, 2, 0},         {7, 4, 19, 1, 2, 0},
    {5, 7, 3, 2, 2, 0, true},  {4, 4, 33, 2, 2, 0, true},   {1, 1, 5, 2, 2, 0, true},
    {6, 5, 10, 3, 2, 1, true}, {3, 5, 17, 2, 3, 1, true},   {8, 9, 8, 4, 3, 2, true},
    {32, 32, 64, 3, 2, 1},     {16, 16, 16, 2, 3, 1, true},
};

// Calls check(geometry, n, write) for all of them.
template <class Check>
void for_each_case(Check check) {
  for (const Pool2dGeometry& g : kGeometries)
    for (const std::int64_t n : {0, 1, 3})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE("n " + std::to_string(n) + " h " + std::to_string(g.in_h) + " w " +
                     std::to_string(g.in_w) + " c " + std::to_string(g.channels) + " window " +
                     std::to_string(g.window) + " stride " + std::to_string(g.stride) +
                     " padding " + std::to_string(g.padding) + (g.ceil_mode ? " ceil" : ""));
        check(g, n, write);
      }
}

// Small whole numbers: many ties, and sums that every storage keeps exactly.
Operand<float> tied_operand(const Shape& shape, std::uint32_t seed) {
  Operand<float> operand = random_operand(shape, seed);
  for (float& value : operand.values) value = std::round(3 * value);
  return operand;
}

TYPED_TEST(Pool2dCuda, MaximumIsExact) {
  for_each_case([](const Pool2dGeometry& g, std::int64_t n, Write write) {
    const Shape in{n, g.in_h, g.in_w, g.channels}, out{n, g.out_h(), g.out_w(), g.channels};
    const Operand<float> x = tied_operand(in, 1), dy = tied_operand(out, 2),
                         start = tied_operand(in, 3);
    Operand<double> wide_x = widen(x), wide_y(out, 7), wide_dy = widen(dy), wide_dx = widen(start);
    Operand<std::uint8_t> wide_argmax(out, 255);
    Context host(1, 0);
    max_pool2d_forward(
        host.context,
        {.geometry = g, .x = wide_x.view(), .y = wide_y.view(), .argmax = wide_argmax.view()});
    max_pool2d_backward(host.context, {.geometry = g,
                                       .dy = wide_dy.view(),
                                       .argmax = wide_argmax.view(),
                                       .dx = wide_dx.view(),
                                       .write = write});

    DeviceContext c;
    const auto device_x = to_device<TypeParam>(in, x.values),
               y = to_device<TypeParam>(out, dy.values),
               only_y = to_device<TypeParam>(out, dy.values),
               device_dy = to_device<TypeParam>(out, dy.values),
               dx = to_device<TypeParam>(in, start.values);
    const DeviceOperand<std::uint8_t> argmax(out, std::vector<std::uint8_t>(dy.values.size(), 254));
    max_pool2d_forward(
        c.context, {.geometry = g, .x = device_x.view(), .y = y.view(), .argmax = argmax.view()});
    max_pool2d_forward(c.context, {.geometry = g, .x = device_x.view(), .y = only_y.view()});
    max_pool2d_backward(c.context, {.geometry = g,
                                    .dy = device_dy.view(),
                                    .argmax = argmax.view(),
                                    .dx = dx.view(),
                                    .write = write});
    c.finish();
    EXPECT_LE(relative_error(as_floats(y.values()), wide_y.values), 0);
    EXPECT_EQ(as_floats(only_y.values()), as_floats(y.values()));
    EXPECT_EQ(argmax.values(), wide_argmax.values);
    EXPECT_LE(relative_error(as_floats(dx.values()), wide_dx.values), 0);
  });
}

TYPED_TEST(Pool2dCuda, AverageAgreesWithFloat64) {
  for_each_case([](const Pool2dGeometry& g, std::int64_t n, Write write) {
    const Shape in{n, g.in_h, g.in_w, g.channels}, out{n, g.out_h(), g.out_w(), g.channels};
    const Operand<float> x = random_operand(in, 1), dy = random_operand(out, 2),
                         start = random_operand(in, 3);
    Operand<double> wide_x = kept<TypeParam>(x), wide_y(out, 7), wide_dy = kept<TypeParam>(dy),
                    wide_dx = kept<TypeParam>(start);
    Context host(1, 0);
    average_pool2d_forward(host.context, {.geometry = g, .x = wide_x.view(), .y = wide_y.view()});
    average_pool2d_backward(
        host.context, {.geometry = g, .dy = wide_dy.view(), .dx = wide_dx.view(), .write = write});

    DeviceContext c;
    const auto device_x = to_device<TypeParam>(in, x.values),
               y = to_device<TypeParam>(out, dy.values),
               device_dy = to_device<TypeParam>(out, dy.values),
               dx = to_device<TypeParam>(in, start.values);
    average_pool2d_forward(c.context, {.geometry = g, .x = device_x.view(), .y = y.view()});
    average_pool2d_backward(
        c.context, {.geometry = g, .dy = device_dy.view(), .dx = dx.view(), .write = write});
    c.finish();
    EXPECT_LE(relative_error(as_floats(y.values()), wide_y.values), storage_error<TypeParam>());
    EXPECT_LE(relative_error(as_floats(dx.values()), wide_dx.values), storage_error<TypeParam>());
  });
}

TYPED_TEST(Pool2dCuda, GlobalAverageAgreesWithFloat64) {
  for (const Shape& in :
       {Shape{0, 4, 4, 3}, Shape{2, 1, 1, 5}, Shape{3, 4, 4, 512}, Shape{5, 3, 7, 19},
        Shape{1, 2, 3, 8}, Shape{2, 7, 7, 264}, Shape{2, 40, 31, 16}})
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE(in.to_string());
      const Shape out{in[0], in[3]};
      const Operand<float> x = random_operand(in, 1), dy = random_operand(out, 2),
                           start = random_operand(in, 3);
      Operand<double> wide_x = kept<TypeParam>(x), wide_y(out, 7), wide_dy = kept<TypeParam>(dy),
                      wide_dx = kept<TypeParam>(start);
      Context host(1, 0);
      global_average_pool_forward(host.context, wide_x.view(), wide_y.view());
      global_average_pool_backward(host.context, wide_dy.view(), wide_dx.view(), write);

      DeviceContext c;
      const auto device_x = to_device<TypeParam>(in, x.values),
                 y = to_device<TypeParam>(out, dy.values),
                 device_dy = to_device<TypeParam>(out, dy.values),
                 dx = to_device<TypeParam>(in, start.values);
      global_average_pool_forward(c.context, device_x.view(), y.view());
      global_average_pool_backward(c.context, device_dy.view(), dx.view(), write);
      c.finish();
      EXPECT_LE(relative_error(as_floats(y.values()), wide_y.values), storage_error<TypeParam>());
      EXPECT_LE(relative_error(as_floats(dx.values()), wide_dx.values), storage_error<TypeParam>());
    }
}

// Windows {3 1 3 0} -> first 3; {2 5 5 5} -> first 5; {-1 -2 -2 -1} -> first -1; {nan 4 1 nan} ->
// nan, the later one.
TYPED_TEST(Pool2dCuda, TheFirstOfEqualsWinsAndANanWinsOverAll) {
  const float nan = std::nanf("");
  for (const std::int64_t channels : {1, 8, 16, 19}) {
    const Pool2dGeometry g{4, 4, channels, 2, 2, 0};
    const std::vector<float> image{3, 1, 2, 5, 3, 0, 5, 5, -1, -2, nan, 4, -2, -1, 1, nan};
    Operand<float> x({1, 4, 4, channels}, 0);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = image[i / static_cast<std::size_t>(channels)];
    const Shape out{1, 2, 2, channels};
    const auto device_x = to_device<TypeParam>(x.shape, x.values),
               y = to_device<TypeParam>(out,
                                        std::vector<float>(static_cast<std::size_t>(4 * channels))),
               dx = to_device<TypeParam>(x.shape, x.values);
    const DeviceOperand<std::uint8_t> argmax(
        out, std::vector<std::uint8_t>(static_cast<std::size_t>(4 * channels), 9));
    DeviceContext c;
    max_pool2d_forward(
        c.context, {.geometry = g, .x = device_x.view(), .y = y.view(), .argmax = argmax.view()});
    max_pool2d_backward(c.context, {.geometry = g,
                                    .dy = y.view(),
                                    .argmax = argmax.view(),
                                    .dx = dx.view(),
                                    .write = Write::kOverwrite});
    c.finish();
    const std::vector<float> found = as_floats(y.values());
    const std::vector<std::uint8_t> winners = argmax.values();
    const float values[] = {3, 5, -1};
    const std::uint8_t expected[] = {0, 1, 0, 3};
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t pixel = i / static_cast<std::size_t>(channels);
      if (pixel < 3) {
        EXPECT_EQ(found[i], values[pixel]);
      } else {
        EXPECT_TRUE(std::isnan(found[i]));
      }
      EXPECT_EQ(winners[i], expected[pixel]) << i;
    }
    // A NaN of the gradient goes to its winner alone.
    std::size_t nans = 0;
    for (const float value : as_floats(dx.values())) nans += std::isnan(value);
    EXPECT_EQ(nans, static_cast<std::size_t>(channels));
  }
}

// More places than the largest grid has threads.
TYPED_TEST(Pool2dCuda, LoopsPastTheGrid) {
  const Pool2dGeometry g{750, 731, 1, 1, 1, 0};
  const Shape shape{1, 750, 731, 1};
  const Operand<float> x = random_operand(shape, 1);
  const auto device_x = to_device<TypeParam>(shape, x.values),
             y = to_device<TypeParam>(shape, std::vector<float>(x.values.size(), 9));
  DeviceContext c;
  max_pool2d_forward(c.context, {.geometry = g, .x = device_x.view(), .y = y.view()});
  c.finish();
  EXPECT_EQ(as_floats(y.values()), as_floats(device_x.values()));
}

}  // namespace
}  // namespace engine::ops
