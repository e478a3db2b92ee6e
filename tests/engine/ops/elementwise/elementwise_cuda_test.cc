// Elementwise kernels on a CUDA device: against the references in float64, bit-equal masks of
// dropout, outputs over inputs, and operands that do not begin at a multiple of 16 bytes.
#include "engine/ops/elementwise/elementwise.h"

#include <numeric>

#include "engine/core/random.h"
#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class ElementwiseCuda : public CudaTest {};
TYPED_TEST_SUITE(ElementwiseCuda, Storages);

// Calls check(count, shift): nothing, less than a pack, odd numbers, more than one block.
template <class Check>
void for_each_count(Check check) {
  for (const std::int64_t count : {0, 1, 3, 7, 8, 9, 31, 255, 2048, 5003})
    for (const std::int64_t shift : {0, 1}) {
      SCOPED_TRACE(std::to_string(count) + " elements, shifted by " + std::to_string(shift));
      check(count, shift);
    }
}

TYPED_TEST(ElementwiseCuda, ReluAndItsGradient) {
  for_each_count([](std::int64_t count, std::int64_t shift) {
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      const Shape shape{count};
      const Operand<float> x = random_operand(shape, 1), dy = random_operand(shape, 2);
      const Given operands[] = {x, dy, nothing(shape), output(shape, write), x, dy};
      const auto [found, expected] = run_on_device<TypeParam>(
          operands,
          [&](KernelContext& c, TensorView from, TensorView slopes, TensorView y, TensorView dx,
              TensorView same_x, TensorView same_dy) {
            relu_forward(c, from, y);
            relu_backward(c, y, slopes, dx, write);
            relu_forward(c, same_x, same_x);
            relu_backward(c, y, same_dy, same_dy, Write::kOverwrite);
          },
          shift);
      EXPECT_LE(relative_error(found[2], expected[2]), 0);
      EXPECT_EQ(found[4], found[2]);
      EXPECT_LE(relative_error(found[3], expected[3]),
                write == Write::kAdd ? storage_error<TypeParam>() : 0);
      if (write == Write::kOverwrite) {
        EXPECT_EQ(found[5], found[3]);
      }
    }
  });
}

TYPED_TEST(ElementwiseCuda, ReluKeepsNan) {
  const DeviceOperand<TypeParam> x =
      to_device<TypeParam>({9}, {-1, std::nanf(""), 2, 0, -0.0f, 5, 6, 7, std::nanf("")});
  const DeviceOperand<TypeParam> y = to_device<TypeParam>({9}, std::vector<float>(9, 3));
  DeviceContext c;
  relu_forward(c.context, x.view(), y.view());
  c.finish();
  const auto found = as_floats(y.values());
  for (const std::size_t i : {1, 8}) EXPECT_TRUE(std::isnan(found[i]));
  EXPECT_EQ(found[0], 0);
  EXPECT_EQ(found[7], 7);
}

TYPED_TEST(ElementwiseCuda, AddAndCopy) {
  for_each_count([](std::int64_t count, std::int64_t shift) {
    const Operand<float> a = random_operand({count}, 1), b = random_operand({count}, 2);
    for (const bool relu : {false, true}) {
      const Given operands[] = {a, b, nothing(a.shape), b, nothing(a.shape), b};
      const auto [found, expected] = run_on_device<TypeParam>(
          operands,
          [&](KernelContext& c, TensorView left, TensorView right, TensorView y, TensorView sum,
              TensorView copy, TensorView same) {
            add_forward(c, left, right, relu, y);
            copy_or_add(c, left, sum, Write::kAdd);
            copy_or_add(c, left, copy, Write::kOverwrite);
            add_forward(c, left, same, relu, same);  // in place
          },
          shift);
      EXPECT_LE(relative_error(found[2], expected[2]), storage_error<TypeParam>());
      EXPECT_EQ(found[5], found[2]);
      EXPECT_LE(relative_error(found[3], expected[3]), storage_error<TypeParam>());
      EXPECT_EQ(found[4], found[0]);
    }
  });
}

// More elements than the largest grid has threads.
TYPED_TEST(ElementwiseCuda, LoopsPastTheGrid) {
  const std::int64_t count = 132 * 16 * 256 + 1000;
  const Operand<float> a = random_operand({count}, 1);
  const Shifted<TypeParam> device_a(a.shape, a.values, 1), y(a.shape, a.values, 1);
  DeviceContext c;
  add_forward(c.context, device_a.view(), device_a.view(), false, y.view());
  c.finish();
  std::vector<double> expected = kept<TypeParam>(a).values;
  for (double& value : expected) value *= 2;
  EXPECT_LE(relative_error(y.values(), expected), 0);
}

TYPED_TEST(ElementwiseCuda, CastsBothWays) {
  for_each_count([](std::int64_t count, std::int64_t shift) {
    const Operand<float> x = random_operand({count}, 1);
    const Shifted<float> source(x.shape, x.values, shift), back(x.shape, x.values, 0);
    const Shifted<TypeParam> narrow(x.shape, std::vector<float>(x.values.size()), shift);
    DeviceContext c;
    cast(c.context, source.view(), narrow.view());
    constexpr bool kWide = std::is_same_v<TypeParam, double>;  // is cast to, but not back
    if (!kWide) cast(c.context, narrow.view(), back.view());
    c.finish();
    const std::vector<double> expected = kept<TypeParam>(x).values;
    EXPECT_LE(relative_error(narrow.values(), expected), 0);
    EXPECT_LE(relative_error(back.values(), expected), 0);
  });
}

TYPED_TEST(ElementwiseCuda, FillsAndZeroes) {
  for_each_count([](std::int64_t count, std::int64_t shift) {
    const std::vector<float> other(static_cast<std::size_t>(count), 3);
    const Shifted<TypeParam> filled({count}, other, shift), zeroed({count}, other, shift);
    DeviceContext c;
    fill(c.context, 0.75, filled.view());
    zero(c.context, zeroed.view());
    c.finish();
    EXPECT_EQ(filled.values(), std::vector<StateOf<TypeParam>>(other.size(), 0.75f));
    EXPECT_EQ(zeroed.values(), std::vector<StateOf<TypeParam>>(other.size(), 0.f));
  });
}

TYPED_TEST(ElementwiseCuda, FlattenIsChannelFirstAndBack) {
  for (const Shape& shape :
       {Shape{0, 2, 3, 4}, Shape{1, 1, 1, 1}, Shape{2, 7, 7, 32}, Shape{3, 3, 5, 7},
        Shape{2, 9, 10, 17}, Shape{1, 8, 9, 130}, Shape{2200, 1, 2, 3}})
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE(shape.to_string());
      const Shape flat{shape[0], shape[1] * shape[2] * shape[3]};
      const Given operands[] = {random_operand(shape, 1), random_operand(flat, 2),
                                output(flat, write), output(shape, write)};
      const auto [found, expected] = run_on_device<TypeParam>(
          operands,
          [&](KernelContext& c, TensorView x, TensorView y, TensorView to_flat, TensorView back) {
            nhwc_to_channel_first(c, x, to_flat, write);
            channel_first_to_nhwc(c, y, back, write);
          });
      const double limit = write == Write::kAdd ? storage_error<TypeParam>() : 0;
      EXPECT_LE(relative_error(found[2], expected[2]), limit);
      EXPECT_LE(relative_error(found[3], expected[3]), limit);
    }
}

constexpr std::uint64_t kKey = 0x123456789abcdef;
const std::vector<std::int64_t> kIds{5, 0, 59'999,
                                     (std::int64_t{1} << 31) + 7};  // counters beyond 32 bits too

TYPED_TEST(ElementwiseCuda, DropoutDrawsTheMaskOfPhilox) {
  const DeviceOperand<std::int64_t> ids({4}, kIds);
  const std::span<const std::int64_t> id_span{ids.view().as<std::int64_t>(), kIds.size()};
  for (const std::uint64_t epoch : {std::uint64_t{3}, std::uint64_t{1} << 33}) {
    const DeviceOperand<std::int64_t> device_epoch({1}, {static_cast<std::int64_t>(epoch)});
    for (const std::int64_t count : {1, 3, 4, 5, 63, 64, 72, 130, 1024})
      for (const std::int64_t shift : {0, 1})
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          SCOPED_TRACE(std::to_string(count) + " elements, shifted by " + std::to_string(shift));
          const Shape shape{4, count};
          const Operand<float> x = random_operand(shape, 1), start = random_operand(shape, 2);
          std::vector<double> expected;
          const std::uint64_t blocks = static_cast<std::uint64_t>(count + 3) / 4;
          for (const std::int64_t id : kIds) {
            for (std::uint64_t e = 0; e < static_cast<std::uint64_t>(count); ++e) {
              const auto words =
                  philox(kKey, epoch, static_cast<std::uint64_t>(id) * blocks + e / 4);
              const bool keep = uniform_float(words[e % 4]) >= 0.3;
              const std::size_t i = expected.size();
              expected.push_back(keep ? kept<TypeParam>(x).values[i] / 0.7 : 0.0);
            }
          }
          DeviceContext c;
          c.context.epoch = reinterpret_cast<const std::uint64_t*>(device_epoch.view().data);
          const Shifted<TypeParam> device_x(shape, x.values, shift), y(shape, start.values, shift),
              dx(shape, start.values, shift);
          dropout(c.context, {.from = device_x.view(),
                              .rate = 0.3,
                              .key = kKey,
                              .epoch = 99,
                              .sample_ids = id_span,
                              .to = y.view()});
          dropout(c.context, {.from = device_x.view(),
                              .rate = 0.3,
                              .key = kKey,
                              .epoch = 99,
                              .sample_ids = id_span,
                              .to = dx.view(),
                              .write = write});
          c.finish();
          const auto found = y.values();
          for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_NEAR(found[i], expected[i], storage_error<TypeParam>() * std::fabs(expected[i]))
                << i;
          if (write == Write::kAdd)
            for (std::size_t i = 0; i < found.size(); ++i)
              expected[i] += kept<TypeParam>(start).values[i];
          EXPECT_LE(relative_error(dx.values(), expected), storage_error<TypeParam>());
        }
  }
}

using ElementwiseCudaOnce = CudaTest;

// The bits that the CPU's kernels give, and in place.
TEST_F(ElementwiseCudaOnce, DropoutIsBitEqualToTheCpus) {
  const Shape shape{4, 9, 11};
  Operand<float> x = random_operand(shape, 1), y = x;
  Context host(2, 0);
  const DeviceOperand<std::int64_t> ids({4}, kIds), epoch({1}, {12});
  const DeviceOperand<float> device_x(shape, x.values);
  for (const double rate : {0.0, 0.1, 0.5, 1.0}) {
    dropout(host.context, {.from = x.view(),
                           .rate = rate,
                           .key = kKey,
                           .epoch = 12,
                           .sample_ids = kIds,
                           .to = y.view()});
    DeviceContext c;
    c.context.epoch = reinterpret_cast<const std::uint64_t*>(epoch.view().data);
    const DeviceOperand<float> in_place(shape, x.values);
    dropout(c.context, {.from = in_place.view(),
                        .rate = rate,
                        .key = kKey,
                        .epoch = 0,
                        .sample_ids = {ids.view().as<std::int64_t>(), 4},
                        .to = in_place.view()});
    c.finish();
    EXPECT_EQ(in_place.values(), y.values) << rate;
  }
  DeviceContext without;
  EXPECT_THROW(dropout(without.context, {.from = device_x.view(),
                                         .rate = 0.5,
                                         .key = kKey,
                                         .epoch = 0,
                                         .sample_ids = {ids.view().as<std::int64_t>(), 4},
                                         .to = device_x.view()}),
               Error);
}

TEST_F(ElementwiseCudaOnce, IncrementCountsWithinACapturedStep) {
  const DeviceOperand<std::int64_t> counter({}, {std::int64_t{1} << 40});
  DeviceContext c;
  increment(c.context, counter.view());  // loads the kernel, which a capture must not do
  c.finish();
  engine::cuda::StepGraph::begin_capture(c.context.stream);
  increment(c.context, counter.view());
  const engine::cuda::StepGraph graph = engine::cuda::StepGraph::end_capture(c.context.stream);
  graph.launch(c.context.stream);
  graph.launch(c.context.stream);
  c.finish();
  EXPECT_EQ(counter.values(), std::vector<std::int64_t>{(std::int64_t{1} << 40) + 3});
}

TEST_F(ElementwiseCudaOnce, RefusesOperandsThatDoNotFit) {
  DeviceContext c;
  const DeviceOperand<float> three({3}, {1, 2, 3});
  const DeviceOperand<bf16> half = to_device<bf16>({3}, {1, 2, 3});
  const DeviceOperand<f16> other = to_device<f16>({3}, {1, 2, 3});
  const DeviceOperand<double> wide({3}, {1, 2, 3});
  const DeviceOperand<std::int32_t> whole({3}, {1, 2, 3});
  EXPECT_THROW(relu_forward(c.context, three.view(), half.view()), ShapeError);
  EXPECT_THROW(relu_forward(c.context, three.view(), wide.view()), ShapeError);
  EXPECT_THROW(relu_forward(c.context, whole.view(), whole.view()), ShapeError);
  EXPECT_THROW(cast(c.context, half.view(), other.view()), ShapeError);
  EXPECT_THROW(cast(c.context, wide.view(), three.view()), ShapeError);
  EXPECT_THROW(increment(c.context, three.view()), ShapeError);
  EXPECT_THROW(fill(c.context, 1, whole.view()), ShapeError);
}

}  // namespace
}  // namespace engine::ops
