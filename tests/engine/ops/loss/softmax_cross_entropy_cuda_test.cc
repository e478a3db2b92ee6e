// Softmax with cross entropy on a CUDA device against the float64 reference, for every storage;
// labels out of range; totals.
#include "engine/ops/loss/softmax_cross_entropy.h"

#include <array>
#include <limits>
#include <random>

#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/loss/among_largest.h"

namespace engine::ops {
namespace {

using namespace cuda_test;
using kernel_test::among_largest;

template <class T>
class SoftmaxCrossEntropyCuda : public CudaTest {};
TYPED_TEST_SUITE(SoftmaxCrossEntropyCuda, Storages);

std::vector<std::int32_t> some_labels(std::int64_t rows, std::int64_t classes) {
  std::mt19937 generator(5);
  std::vector<std::int32_t> labels;
  for (std::int64_t r = 0; r < rows; ++r)
    labels.push_back(static_cast<std::int32_t>(generator() % static_cast<unsigned>(classes)));
  return labels;
}

Operand<float> some_logits(const Shape& shape) {
  Operand<float> logits = random_operand(shape, 1);
  for (float& value : logits.values) value *= 6;
  return logits;
}

Operand<std::int32_t> labels_of(const Shape& shape) {
  return operand_of<std::int32_t>({shape[0]}, some_labels(shape[0], shape[1]));
}

template <class T>
void compare_losses(const Shape& shape, double smoothing, Write write, std::int64_t shift) {
  const Shape rows{shape[0]};
  const Given operands[] = {
      some_logits(shape),   labels_of(shape),     state(random_operand(rows, 2)),
      state(nothing(rows)), state(nothing(rows)), nothing(shape),
      output(shape, write)};
  const auto [found, expected] = run_on_device<T>(
      operands,
      [&](KernelContext& c, TensorView logits, TensorView labels, TensorView dloss, TensorView loss,
          TensorView inferred, TensorView gradient, TensorView dlogits) {
        softmax_cross_entropy_forward(c, {logits, labels, loss, gradient, smoothing});
        softmax_cross_entropy_forward(
            c,
            {.logits = logits, .labels = labels, .loss = inferred, .label_smoothing = smoothing});
        softmax_cross_entropy_backward(c, {gradient, dloss, dlogits, write});
      },
      shift);
  EXPECT_LE(relative_error(found[3], expected[3]), state_error<T>());
  EXPECT_EQ(found[4], found[3]);
  EXPECT_LE(relative_error(found[5], expected[5], 0.01), storage_error<T>());
  EXPECT_LE(relative_error(found[6], expected[6], 0.01), 2 * storage_error<T>());
}

TYPED_TEST(SoftmaxCrossEntropyCuda, AgreesWithTheReference) {
  for (const Shape& shape :
       {Shape{0, 10}, Shape{1, 1}, Shape{37, 10}, Shape{70, 65}, Shape{5, 129}, Shape{9, 1000},
        Shape{3, 2503}, Shape{3, 5008}, Shape{2, 20608}, Shape{2, 21001}})
    for (const double smoothing : {0.0, 0.1})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(shape.to_string() + " " + std::to_string(smoothing));
        compare_losses<TypeParam>(shape, smoothing, write, 0);
      }
}

TYPED_TEST(SoftmaxCrossEntropyCuda, OperandsMayBeginAnywhere) {
  for (const std::int64_t shift : {0, 1})
    compare_losses<TypeParam>({3, 2504}, 0, Write::kOverwrite, shift);
}

// By warps and by blocks; rows without a label have logits that are no numbers.
TYPED_TEST(SoftmaxCrossEntropyCuda, LeavesOutRowsWithoutALabel) {
  for (const Shape& shape : {Shape{37, 10}, Shape{9, 1000}, Shape{3, 2503}, Shape{3, 20608}}) {
    SCOPED_TRACE(shape.to_string());
    const std::int64_t rows = shape[0], classes = shape[1];
    Operand<float> logits = some_logits(shape);
    std::vector<std::int32_t> labels = some_labels(rows, classes);
    for (std::int64_t r = 0; r < rows; r += 2) {
      labels[static_cast<std::size_t>(r)] = kNoLabel;
      logits.values[static_cast<std::size_t>(r * classes)] = NAN;
    }
    const Given operands[] = {logits, operand_of<std::int32_t>({rows}, labels),
                              state(nothing({rows})), nothing(shape)};
    const auto [found, expected] =
        run_on_device<TypeParam>(operands, [&](KernelContext& c, TensorView from, TensorView of,
                                               TensorView loss, TensorView gradient) {
          softmax_cross_entropy_forward(c, {from, of, loss, gradient});
        });
    EXPECT_LE(relative_error(found[2], expected[2]), state_error<TypeParam>());
    EXPECT_LE(relative_error(found[3], expected[3], 0.01), storage_error<TypeParam>());
    for (std::int64_t r = 0; r < rows; r += 2) {
      EXPECT_EQ(found[2][static_cast<std::size_t>(r)], 0);
      for (std::int64_t i = r * classes; i < (r + 1) * classes; ++i)
        ASSERT_EQ(found[3][static_cast<std::size_t>(i)], 0) << i;
    }
  }
}

// By warps, by blocks, and by blocks of long rows, 16 bytes at a time and one element at a time.
TYPED_TEST(SoftmaxCrossEntropyCuda, TotalsAreThoseOfTheHost) {
  for (const Shape& shape :
       {Shape{0, 10}, Shape{3, 3}, Shape{41, 10}, Shape{2100, 7}, Shape{9, 1000}, Shape{7, 2503},
        Shape{7, 5008}, Shape{5, 20608}, Shape{5, 21001}}) {
    SCOPED_TRACE(shape.to_string());
    const std::int64_t rows = shape[0];
    Operand<float> logits = some_logits(shape);
    for (float& value : logits.values)
      value = std::round(value);  // equal ones, and the same in every storage
    auto labels = operand_of<std::int32_t>({rows}, some_labels(rows, shape[1]));
    if (rows > 3) {
      logits.values[1] = NAN;
      logits.values[static_cast<std::size_t>(shape[1])] = INFINITY;
      labels.values[1] = 0;
      labels.values[2] = kNoLabel;
    }
    Operand<float> loss = random_operand({rows}, 2);
    BatchTotals expected{1.5, 2, 3, 4}, expected_more{};
    Context host(1, 0);
    Operand<std::int32_t> host_ranks({rows}, -1);
    Operand<float> host_loss({rows}, 0);
    softmax_cross_entropy_forward(host.context, {.logits = logits.view(),
                                                 .labels = labels.view(),
                                                 .loss = host_loss.view(),
                                                 .ranks = host_ranks.view()});
    add_batch_totals(host.context, {.ranks = host_ranks.view(),
                                    .loss = loss.view(),
                                    .top5 = true,
                                    .totals = &expected,
                                    .more = &expected_more});
    const std::int64_t counted = rows - (rows > 3 ? 1 : 0);
    EXPECT_EQ(expected.rows, counted + 3);
    EXPECT_EQ(expected_more.rows, counted);
    EXPECT_EQ(expected.correct, among_largest(logits, labels.values, 1) + 2);
    EXPECT_EQ(expected.top5, among_largest(logits, labels.values, 5) + 4);
    EXPECT_EQ(expected_more.top5, expected.top5 - 4);

    DeviceContext c;
    const auto device_logits = to_device<TypeParam>(shape, logits.values);
    const DeviceOperand<std::int32_t> device_labels({rows}, labels.values),
        ranks({rows}, std::vector<std::int32_t>(static_cast<std::size_t>(rows), -1));
    const auto device_loss = to_device<StateOf<TypeParam>>({rows}, loss.values),
               own_loss = to_device<StateOf<TypeParam>>({rows}, loss.values);
    softmax_cross_entropy_forward(c.context, {.logits = device_logits.view(),
                                              .labels = device_labels.view(),
                                              .loss = own_loss.view(),
                                              .ranks = ranks.view()});
    for (const bool top5 : {true, false}) {
      std::array<BatchTotals, 2> found{BatchTotals{1.5, 2, 3, 4}, BatchTotals{}};
      const Arena memory(sizeof found, kDevice);
      auto* totals = reinterpret_cast<BatchTotals*>(memory.data());
      engine::cuda::copy_async(totals, &found, sizeof found, c.context.stream);
      add_batch_totals(c.context, {.ranks = ranks.view(),
                                   .loss = device_loss.view(),
                                   .top5 = top5,
                                   .totals = totals,
                                   .more = top5 ? totals + 1 : nullptr});
      engine::cuda::copy_async(&found, totals, sizeof found, c.context.stream);
      c.finish();
      EXPECT_NEAR(found[0].loss_sum, expected.loss_sum, 1e-12 * static_cast<double>(rows));
      EXPECT_EQ(found[0].correct, expected.correct);
      EXPECT_EQ(found[0].rows, expected.rows);
      EXPECT_EQ(found[0].top5, top5 ? expected.top5 : 4);
      EXPECT_EQ(found[1].correct, top5 ? expected_more.correct : 0);
      EXPECT_EQ(found[1].rows, top5 ? counted : 0);
      EXPECT_EQ(found[1].top5, top5 ? expected_more.top5 : 0);
    }
  }
}

// The gradient in place of the logits, and the scaled one in place of that: the same bits.
TYPED_TEST(SoftmaxCrossEntropyCuda, RunsInPlace) {
  for (const Shape& shape : {Shape{37, 10}, Shape{9, 1000}, Shape{3, 2503}, Shape{3, 5008},
                             Shape{2, 20608}, Shape{2, 21001}}) {
    SCOPED_TRACE(shape.to_string());
    const Shape rows{shape[0]};
    const Given logits = some_logits(shape), loss = state(nothing(rows)),
                ranks = Operand<std::int32_t>(rows, -1);
    const Given operands[] = {logits,
                              labels_of(shape),
                              state(random_operand(rows, 2)),
                              loss,
                              loss,
                              ranks,
                              ranks,
                              nothing(shape),
                              nothing(shape),
                              logits};
    const auto found =
        run_on_device<TypeParam>(operands, [](KernelContext& c, TensorView from, TensorView labels,
                                              TensorView dloss, TensorView loss_apart,
                                              TensorView own_loss, TensorView ranks_apart,
                                              TensorView own_ranks, TensorView gradient,
                                              TensorView dlogits, TensorView same) {
          softmax_cross_entropy_forward(c, {from, labels, loss_apart, gradient, 0.1, ranks_apart});
          softmax_cross_entropy_backward(c, {gradient, dloss, dlogits});
          softmax_cross_entropy_forward(c, {same, labels, own_loss, same, 0.1, own_ranks});
          softmax_cross_entropy_backward(c, {same, dloss, same});
        }).found;
    EXPECT_EQ(found[4], found[3]);
    EXPECT_EQ(found[6], found[5]);
    EXPECT_EQ(found[9], found[8]);
  }
}

class SoftmaxCrossEntropyFaults : public CudaTest {};

TEST_F(SoftmaxCrossEntropyFaults, TheFirstLabelOutOfRangeIsKeptAndCountsAsZero) {
  const std::int64_t rows = 1300, classes = 4;
  const Operand<float> logits = some_logits({rows, classes});
  std::vector<std::int32_t> labels(static_cast<std::size_t>(rows), 3), mended = labels;
  DeviceContext c;
  const Arena memory(sizeof(DeviceFault), kDevice);
  c.context.fault = reinterpret_cast<DeviceFault*>(memory.data());
  DeviceFault fault;
  engine::cuda::copy_async(c.context.fault, &fault, sizeof fault, c.context.stream);
  const auto device_logits = to_device<float>({rows, classes}, logits.values);
  const auto run = [&] {
    const DeviceOperand<std::int32_t> device_labels({rows}, labels);
    const auto loss =
        to_device<float>({rows}, std::vector<float>(static_cast<std::size_t>(rows), NAN));
    softmax_cross_entropy_forward(
        c.context,
        {.logits = device_logits.view(), .labels = device_labels.view(), .loss = loss.view()});
    engine::cuda::copy_async(&fault, c.context.fault, sizeof fault, c.context.stream);
    c.finish();
    return loss.values();
  };
  run();
  EXPECT_EQ(fault.found, 0);
  labels[1299] = 4, labels[700] = -5, labels[701] = 1000;
  mended[1299] = mended[700] = mended[701] = 0;
  const std::vector<float> found = run();
  EXPECT_EQ(fault.found, 1);
  EXPECT_EQ(fault.value, -5);
  EXPECT_EQ(fault.at, 700);
  EXPECT_EQ(fault.limit, 4);
  labels[0] = 9, mended[0] = 0;
  run();
  EXPECT_EQ(fault.at, 700);  // the earlier one stays
  labels = mended;
  const std::vector<float> expected = run();
  EXPECT_EQ(std::vector<float>(found.begin() + 1, found.end()),
            std::vector<float>(expected.begin() + 1, expected.end()));
}

TEST_F(SoftmaxCrossEntropyFaults, InfiniteLogitsAreAsInTheReference) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> starts = {0, -inf, 1, -inf, -inf, -inf, inf, 0, 1, 1, NAN, 2};
  for (const std::int64_t classes :
       {3, 200, 2000}) {  // what rows have beyond three classes is -inf
    Operand<float> logits({4, classes}, -inf);
    for (std::size_t i = 0; i < starts.size(); ++i)
      logits.values[i / 3 * static_cast<std::size_t>(classes) + i % 3] = starts[i];
    const Given operands[] = {logits, operand_of<std::int32_t>({4}, {0, 1, 2, 0}),
                              state(Operand<float>({4}, 7)), nothing(logits.shape)};
    const auto [found, expected] =
        run_on_device<float>(operands, [](KernelContext& c, TensorView from, TensorView labels,
                                          TensorView loss, TensorView gradient) {
          softmax_cross_entropy_forward(c, {from, labels, loss, gradient});
        });
    for (const std::size_t part : {2, 3})
      for (std::size_t i = 0; i < found[part].size(); ++i)
        ASSERT_TRUE(std::isnan(expected[part][i])
                        ? std::isnan(found[part][i])
                        : std::fabs(found[part][i] - expected[part][i]) < 1e-6)
            << i;
  }
}

}  // namespace
}  // namespace engine::ops
