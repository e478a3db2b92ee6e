// No memory is asked for inside a training step: counts every malloc and new of the process during
// steps 3 to 10.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/support/allocation_counter.h"

namespace {

using engine::Graph;
using engine::NodeId;
using test_support::allocations;
namespace layers = engine::layers;
namespace ops = engine::ops;

Graph every_layer() {
  return test_support::classifier({12, 12, 3}, [](Graph& g, NodeId x) {
    const auto block = [&](const std::string& name, NodeId from) {
      const NodeId c = g.add(
          name + ".c", layers::conv2d({.out_channels = 8, .kernel = 3, .padding = 1}), {from});
      return g.add(name + ".n", layers::batch_norm2d(), {c});
    };
    const NodeId a = g.add("", layers::relu(), {block("a", x)});
    const NodeId depthwise =
        g.add("w", layers::conv2d({.out_channels = 8, .padding = 1, .groups = 8}), {block("b", a)});
    const NodeId image = g.add("", layers::activation({ops::ActivationKind::kSilu}), {depthwise});
    const NodeId means = g.add("", layers::global_average_pool(), {image});
    const NodeId scales = g.add("", layers::activation({ops::ActivationKind::kSigmoid}), {means});
    const NodeId scaled = g.add("", layers::multiply(), {image, scales});
    const NodeId b = g.add("", layers::relu(), {g.add("", layers::add(), {scaled, a})});
    const NodeId c =
        g.add("", layers::relu(),
              {g.add("c", layers::conv2d({.out_channels = 8, .kernel = 1, .stride = 2}), {b})});
    const NodeId pooled = g.add("", layers::add(), {g.add("", layers::max_pool2d({}), {b}), c});
    const NodeId average =
        g.add("", layers::global_average_pool(), {g.add("", layers::average_pool2d({}), {pooled})});
    const NodeId hidden =
        g.add("", layers::relu(),
              {g.add("d", layers::dense(32), {g.add("", layers::flatten(), {pooled})})});
    const NodeId dropped = g.add("", layers::dropout(0.2), {hidden});
    return g.add(
        "", layers::add(),
        {g.add("e", layers::dense(10), {dropped}), g.add("f", layers::dense(10), {average})});
  });
}

class Allocation : public testing::TestWithParam<engine::DType> {};

TEST_P(Allocation, NoneInsideATrainingStep) {
  if (!COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer or C library has its own malloc";
  test_support::Harness harness(every_layer(), {.max_batch = 8, .dtype = GetParam(), .threads = 2});
  const test_support::RandomBatch batch(harness.graph, 8);
  std::int64_t complete = 0;
  const std::function<void(std::int64_t)> ready = [&complete](std::int64_t elements) {
    complete = elements;
  };
  long before = 0;
  for (int step = 1; step <= 10; ++step) {
    if (step == 3) before = allocations;
    const engine::BatchView view = step % 4 == 0 ? batch.slice(0, 5)
                                   : step == 7   ? batch.slice(0, 0)
                                                 : batch.view();
    harness.executor.forward(view, true);
    harness.executor.backward(0.125, engine::Write::kOverwrite, ready);
    harness.executor.forward(view, false);
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_EQ(complete, harness.state.parameters.gradients.size());
}

INSTANTIATE_TEST_SUITE_P(DTypes, Allocation,
                         testing::Values(engine::DType::kF32, engine::DType::kF64),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

TEST(Allocation, CounterSeesMallocAndNew) {
  if (!COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer or C library has its own malloc";
  const long before = allocations;
  std::free(std::malloc(100));
  delete new std::vector<int>(100);
  EXPECT_GE(allocations - before, 2);
}

}  // namespace
