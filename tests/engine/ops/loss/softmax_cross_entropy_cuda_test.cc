// Softmax with cross entropy on a CUDA device against the float64 reference, for every storage;
// labels out of range; totals.
#include "engine/ops/loss/softmax_cross_entropy.h"

#include <array>
#include <limits>
#include <random>

#include "tests/engine/ops/device/cuda_test_support.h"
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

TYPED_TEST(SoftmaxCrossEntropyCuda, AgreesWithTheReference) {
  for (const Shape& shape :
       {Shape{0, 10}, Shape{1, 1}, Shape{37, 10}, Shape{70, 65}, Shape{5, 129}, Shape{9, 1000},
        Shape{3, 2503}, Shape{3, 5008}, Shape{2, 20608}, Shape{2, 21001}})
    for (const double smoothing : {0.0, 0.1})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(shape.to_string() + " " + std::to_string(smoothing));
        const std::int64_t rows = shape[0];
        const Operand<float> logits = some_logits(shape), dloss = random_operand({rows}, 2),
                             start = random_operand(shape, 3);
        auto labels = operand_of<std::int32_t>({rows}, some_labels(rows, shape[1]));
        Operand<double> wide = kept<TypeParam>(logits), loss({rows}, 0), gradient(shape, 0),
                        wide_dloss = widen(dloss), dlogits = kept<TypeParam>(start);
        Context host(1, 0);
        softmax_cross_entropy_forward(host.context, {.logits = wide.view(),
                                                     .labels = labels.view(),
                                                     .loss = loss.view(),
                                                     .gradient = gradient.view(),
                                                     .label_smoothing = smoothing});
        softmax_cross_entropy_backward(host.context, {.gradient = gradient.view(),
                                                      .dloss = wide_dloss.view(),
                                                      .dlogits = dlogits.view(),
                                                      .write = write});

        DeviceContext c;
        const DeviceOperand<std::int32_t> device_labels({rows}, labels.values);
        const auto device_logits = to_device<TypeParam>(shape, logits.values),
                   device_dlogits = to_device<TypeParam>(shape, start.values);
        const auto device_loss =
                       to_device<float>({rows}, std::vector<float>(loss.values.size(), NAN)),
                   without = to_device<float>({rows}, std::vector<float>(loss.values.size(), NAN)),
                   device_dloss = to_device<float>({rows}, dloss.values);
        const auto device_gradient =
            to_device<TypeParam>(shape, std::vector<float>(logits.values.size(), NAN));
        softmax_cross_entropy_forward(c.context, {.logits = device_logits.view(),
                                                  .labels = device_labels.view(),
                                                  .loss = device_loss.view(),
                                                  .gradient = device_gradient.view(),
                                                  .label_smoothing = smoothing});
        softmax_cross_entropy_forward(c.context, {.logits = device_logits.view(),
                                                  .labels = device_labels.view(),
                                                  .loss = without.view(),
                                                  .label_smoothing = smoothing});
        softmax_cross_entropy_backward(c.context, {.gradient = device_gradient.view(),
                                                   .dloss = device_dloss.view(),
                                                   .dlogits = device_dlogits.view(),
                                                   .write = write});
        c.finish();
        EXPECT_LE(relative_error(device_loss.values(), loss.values), 1e-5);
        EXPECT_EQ(device_loss.values(), without.values());
        EXPECT_LE(relative_error(as_floats(device_gradient.values()), gradient.values, 0.01),
                  storage_error<TypeParam>());
        EXPECT_LE(relative_error(as_floats(device_dlogits.values()), dlogits.values, 0.01),
                  2 * storage_error<TypeParam>());
      }
}

TYPED_TEST(SoftmaxCrossEntropyCuda, OperandsMayBeginAnywhere) {
  const std::int64_t rows = 3, classes = 2504;
  const Shape shape{rows, classes};
  const Operand<float> logits = some_logits(shape);
  const DeviceOperand<std::int32_t> labels({rows}, some_labels(rows, classes));
  const auto dloss = to_device<float>({rows}, {1, 2, 3});
  std::vector<std::vector<float>> results[2];
  for (const std::int64_t skipped : {0, 1}) {  // elements before the first
    DeviceContext c;
    std::vector<float> moved(static_cast<std::size_t>(skipped), NAN);
    moved.insert(moved.end(), logits.values.begin(), logits.values.end());
    const Shape all{rows * classes + skipped};
    const auto from = to_device<TypeParam>(all, moved), gradient = to_device<TypeParam>(all, moved),
               dlogits = to_device<TypeParam>(all, moved);
    const auto loss = to_device<float>({rows}, {NAN, NAN, NAN});
    const auto view = [&](const auto& operand) {
      TensorView made = operand.view();
      made.shape = shape;
      made.data = made.template as<TypeParam>() + skipped;
      return made;
    };
    softmax_cross_entropy_forward(c.context, {.logits = view(from),
                                              .labels = labels.view(),
                                              .loss = loss.view(),
                                              .gradient = view(gradient)});
    softmax_cross_entropy_backward(
        c.context, {.gradient = view(gradient), .dloss = dloss.view(), .dlogits = view(dlogits)});
    c.finish();
    results[skipped] = {loss.values(), as_floats(gradient.values()), as_floats(dlogits.values())};
    for (std::size_t i : {1, 2}) {
      std::vector<float>& each = results[skipped][i];
      each.erase(each.begin(), each.begin() + skipped);
    }
  }
  for (const std::size_t i : {0, 1, 2}) {
    const std::vector<double> expected(results[0][i].begin(), results[0][i].end());
    EXPECT_LE(relative_error(results[1][i], expected), i == 0 ? 1e-6 : storage_error<TypeParam>());
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
    EXPECT_EQ(expected.rows, rows + 3);
    EXPECT_EQ(expected_more.rows, rows);
    EXPECT_EQ(expected.correct, among_largest(logits, labels.values, 1) + 2);
    EXPECT_EQ(expected.top5, among_largest(logits, labels.values, 5) + 4);
    EXPECT_EQ(expected_more.top5, expected.top5 - 4);

    DeviceContext c;
    const auto device_logits = to_device<TypeParam>(shape, logits.values);
    const DeviceOperand<std::int32_t> device_labels({rows}, labels.values),
        ranks({rows}, std::vector<std::int32_t>(static_cast<std::size_t>(rows), -1));
    const auto device_loss = to_device<float>({rows}, loss.values),
               own_loss = to_device<float>({rows}, loss.values);
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
      EXPECT_EQ(found[1].rows, top5 ? rows : 0);
      EXPECT_EQ(found[1].top5, top5 ? expected_more.top5 : 0);
    }
  }
}

// The gradient in place of the logits, and the scaled one in place of that: the same bits.
TYPED_TEST(SoftmaxCrossEntropyCuda, RunsInPlace) {
  for (const Shape& shape : {Shape{37, 10}, Shape{9, 1000}, Shape{3, 2503}, Shape{3, 5008},
                             Shape{2, 20608}, Shape{2, 21001}}) {
    SCOPED_TRACE(shape.to_string());
    const std::int64_t rows = shape[0];
    const Operand<float> logits = some_logits(shape);
    const DeviceOperand<std::int32_t> labels({rows}, some_labels(rows, shape[1]));
    const auto dloss = to_device<float>({rows}, random_operand({rows}, 2).values);
    std::vector<std::vector<float>> results[2];
    for (const bool in_place : {false, true}) {
      DeviceContext c;
      const std::vector<float> nothing(logits.values.size(), NAN);
      const auto from = to_device<TypeParam>(shape, logits.values),
                 gradient = to_device<TypeParam>(shape, nothing),
                 dlogits = to_device<TypeParam>(shape, nothing);
      const auto loss =
          to_device<float>({rows}, std::vector<float>(static_cast<std::size_t>(rows), NAN));
      const DeviceOperand<std::int32_t> ranks(
          {rows}, std::vector<std::int32_t>(static_cast<std::size_t>(rows), -1));
      const auto& saved = in_place ? from : gradient;
      const auto& result = in_place ? from : dlogits;
      softmax_cross_entropy_forward(c.context, {.logits = from.view(),
                                                .labels = labels.view(),
                                                .loss = loss.view(),
                                                .gradient = saved.view(),
                                                .label_smoothing = 0.1,
                                                .ranks = ranks.view()});
      softmax_cross_entropy_backward(
          c.context, {.gradient = saved.view(), .dloss = dloss.view(), .dlogits = result.view()});
      c.finish();
      const std::vector<std::int32_t> found = ranks.values();
      results[in_place] = {loss.values(), {found.begin(), found.end()}, as_floats(result.values())};
    }
    EXPECT_EQ(results[1], results[0]);
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
    Operand<float> logits({4, classes}, -inf), loss({4}, 0), gradient({4, classes}, 0);
    for (std::size_t i = 0; i < starts.size(); ++i)
      logits.values[i / 3 * static_cast<std::size_t>(classes) + i % 3] = starts[i];
    auto labels = operand_of<std::int32_t>({4}, {0, 1, 2, 0});
    Context host(1, 0);
    softmax_cross_entropy_forward(host.context, {.logits = logits.view(),
                                                 .labels = labels.view(),
                                                 .loss = loss.view(),
                                                 .gradient = gradient.view()});
    DeviceContext c;
    const auto device_logits = to_device<float>(logits.shape, logits.values),
               device_gradient = to_device<float>(logits.shape, logits.values);
    const DeviceOperand<std::int32_t> device_labels({4}, labels.values);
    const auto device_loss = to_device<float>({4}, {7, 7, 7, 7});
    softmax_cross_entropy_forward(c.context, {.logits = device_logits.view(),
                                              .labels = device_labels.view(),
                                              .loss = device_loss.view(),
                                              .gradient = device_gradient.view()});
    c.finish();
    const auto alike = [](const std::vector<float>& found, const std::vector<float>& expected) {
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_TRUE(std::isnan(expected[i]) ? std::isnan(found[i])
                                            : std::fabs(found[i] - expected[i]) < 1e-6f)
            << i;
    };
    alike(device_loss.values(), loss.values);
    alike(device_gradient.values(), gradient.values);
  }
}

}  // namespace
}  // namespace engine::ops
