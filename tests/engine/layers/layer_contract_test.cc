// Shapes, messages, defaults and file layouts of the layers, and what they compute where a gradient
// check cannot see it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/layers/general/general_layers.h"
#include "engine/layers/layers.h"
#include "engine/layers/spatial/spatial_layers.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

using engine::Graph;
using engine::ModelState;
using engine::NodeId;
using engine::Shape;
namespace layers = engine::layers;

// The message of the ShapeError that adding the layer throws.
std::string shape_error(engine::LayerPtr layer, const std::vector<Shape>& shapes) {
  Graph graph;
  std::vector<NodeId> inputs;
  for (const Shape& shape : shapes)
    inputs.push_back(graph.input("in" + std::to_string(inputs.size()), shape));
  return test_support::error_or<engine::ShapeError>(
      [&] { graph.add("x", std::move(layer), inputs); }, "no error");
}

TEST(LayerShapes, MessagesNameTheLayerAndBothShapes) {
  struct Rejected {
    engine::LayerPtr layer;
    std::vector<Shape> inputs;
    std::string values;
  };
  Rejected cases[] = {
      {layers::dense(10), {Shape{}}, "(dense): [..., in], []"},
      {layers::softmax(), {Shape{}}, "(softmax): rank 1 []"},
      {layers::matmul(),
       {{2, 3, 4}, {2, 3, 4}},
       "(matmul): [..., m, k] [..., k, n], [2, 3, 4] [2, 3, 4]"},
      {layers::matmul({.transpose_second = true}),
       {{2, 3, 4}, {3, 4}},
       "(matmul): [..., m, k] [..., n, k], [2, 3, 4] [3, 4]"},
      {layers::conv2d({.out_channels = 1}), {{10}}, "(conv2d): rank 3 [h, w, c] [10]"},
      {layers::conv2d({.out_channels = 1, .kernel = 5, .padding = 1}),
       {{2, 4, 1}},
       "(conv2d): [3, 3, 1] (window 5, padding 1), [2, 4, 1]"},
      {layers::max_pool2d({}),
       {{1, 1, 16}},
       "(max_pool2d): [2, 2, 16] (window 2, padding 0), [1, 1, 16]"},
      {layers::add(), {{8, 8, 16}, {8, 8, 32}}, "(add): 1, [8, 8, 16] [8, 8, 32]"},
      {layers::group_norm({.groups = 3}), {{4, 4, 8}}, "(group_norm): 3 groups [4, 4, 8]"},
      {layers::conv2d({.out_channels = 6, .groups = 3}),
       {{4, 4, 8}},
       "(conv2d): 3 groups [4, 4, 8]"},
      {layers::multiply(), {{8, 8, 16}, {8}}, "(multiply): 1, [8, 8, 16] [8]"},
      {layers::add(), {{8}}, "(add): 2 inputs, 1"}};
  for (Rejected& c : cases)
    EXPECT_VALUES(shape_error(std::move(c.layer), c.inputs), "'x' " + c.values);
}

std::string shape_error(const engine::Layer& layer, const std::vector<Shape>& inputs) {
  try {
    static_cast<void>(layer.output_shape(inputs));
  } catch (const engine::ShapeError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LayerShapes, OutputsAreThoseOfPyTorch) {
  const auto shape = [](engine::LayerPtr layer, const Shape& in) {
    return layer->output_shape(std::vector{in});
  };
  EXPECT_EQ(shape(layers::conv2d({.out_channels = 64, .kernel = 7, .stride = 2, .padding = 3}),
                  {224, 224, 3}),
            (Shape{112, 112, 64}));
  EXPECT_EQ(shape(layers::max_pool2d({.window = 3, .stride = 2, .padding = 1}), {112, 112, 64}),
            (Shape{56, 56, 64}));
  EXPECT_EQ(shape(layers::max_pool2d({.window = 2}), {7, 5, 4}), (Shape{3, 2, 4}));
  EXPECT_EQ(shape(layers::average_pool2d({.window = 2, .ceil_mode = true}), {7, 5, 4}),
            (Shape{4, 3, 4}));
  EXPECT_EQ(shape(layers::average_pool2d({.window = 2, .ceil_mode = true}), {1, 1, 4}),
            (Shape{1, 1, 4}));
  EXPECT_EQ(shape(layers::pad_channels(1, 4), {7, 5, 16}), (Shape{7, 5, 21}));
  EXPECT_EQ(shape(layers::shuffle_channels(4), {7, 5, 16}), (Shape{7, 5, 16}));
  EXPECT_THROW(shape(layers::shuffle_channels(3), {7, 5, 16}), engine::ShapeError);
  EXPECT_EQ(shape(layers::global_average_pool(), {4, 4, 512}), (Shape{512}));
  EXPECT_EQ(shape(layers::flatten(), {7, 7, 32}), (Shape{1568}));
}

TEST(LayerShapes, WindowsMayDifferAlongTheAxes) {
  const std::vector<Shape> inputs{{9, 8, 4}};
  const layers::Conv2dOptions options{.out_channels = 6,
                                      .kernel = {3, 2},
                                      .stride = {1, 2},
                                      .padding = {0, 1, 2, 0},
                                      .groups = 2,
                                      .dilation = {2, 1}};
  const engine::LayerPtr layer = layers::conv2d(options);
  EXPECT_EQ(layer->output_shape(inputs), (Shape{7, 4, 6}));
  const auto parameters = layer->parameters(inputs);
  EXPECT_EQ(parameters[0].layout.file_shape, (Shape{6, 2, 3, 2}));
  EXPECT_EQ(parameters[0].layout.memory_shape(), (Shape{6, 3, 2, 2}));
  EXPECT_DOUBLE_EQ(parameters[0].initializer.value, 1 / std::sqrt(12.0));
  EXPECT_VALUES(shape_error(*layer, {{2, 8, 4}}), "[3, 1, 4] 5 2 [2, 8, 4]");
  EXPECT_VALUES(shape_error(*layer, {{9, 8, 3}}), "2 groups [9, 8, 3]");
}

TEST(LayerShapes, TransposedConvolutionsAreThoseOfPyTorch) {
  const engine::LayerPtr layer = layers::conv_transpose({.out_channels = 6,
                                                         .kernel = {3, 2},
                                                         .stride = {2, 3},
                                                         .padding = {1, 0},
                                                         .output_padding = {1, 2},
                                                         .groups = 2,
                                                         .dilation = {1, 2}});
  const std::vector<Shape> inputs{{5, 4, 8}};
  EXPECT_EQ(layer->output_shape(inputs), (Shape{10, 14, 6}));
  const auto parameters = layer->parameters(inputs);
  EXPECT_EQ(parameters[0].layout.file_shape, (Shape{8, 3, 3, 2}));
  EXPECT_EQ(parameters[1].layout.file_shape, (Shape{6}));
  EXPECT_DOUBLE_EQ(parameters[0].initializer.value, 1 / std::sqrt(18.0));
  EXPECT_VALUES(
      shape_error(*layers::conv_transpose({.out_channels = 1, .padding = 2}), {{1, 1, 3}}),
      "output pixel padding [1, 1, 3]");
}

TEST(LayerShapes, ResizedImagesAreThoseOfPyTorch) {
  const std::vector<Shape> inputs{{7, 5, 3}};
  EXPECT_EQ(layers::resize({})->output_shape(inputs), (Shape{14, 10, 3}));
  EXPECT_EQ(layers::resize({.factor_height = 1.5, .factor_width = 0.5})->output_shape(inputs),
            (Shape{10, 2, 3}));
  EXPECT_EQ(layers::resize({.size = {4, 9}})->output_shape(inputs), (Shape{4, 9, 3}));
  EXPECT_EQ(layers::pad({1, 2, 0, 3})->output_shape(inputs), (Shape{8, 10, 3}));
  EXPECT_VALUES(shape_error(*layers::resize({.factor_height = 0.1}), inputs),
                "output pixel [7, 5, 3]");
}

TEST(LayerShapes, ConvolutionsByAnInputTakeItsWindows) {
  const std::vector<Shape> inputs{{7, 5, 4}, {6, 3, 2, 2}};
  EXPECT_EQ(layers::convolve({.stride = 2, .padding = 1, .groups = 2})->output_shape(inputs),
            (Shape{4, 3, 6}));
  EXPECT_VALUES(shape_error(*layers::convolve({}), inputs),
                "[outputs, height, width, 4 / 1] 1, [6, 3, 2, 2]");
  EXPECT_THROW(layers::convolve({.stride = 0}), engine::ModelError);
}

TEST(LayerShapes, ConcatAddsTheChannels) {
  const auto joined = [](const std::vector<Shape>& inputs) {
    return layers::concat()->output_shape(inputs);
  };
  EXPECT_EQ(joined({{7, 5, 3}, {7, 5, 1}, {7, 5, 3}}), (Shape{7, 5, 7}));
  EXPECT_EQ(joined({{6}, {2}}), (Shape{8}));
  EXPECT_THROW(joined({{7, 5, 3}, {7, 4, 3}}), engine::ShapeError);
  EXPECT_THROW(joined({{7, 5, 3}, {3}}), engine::ShapeError);
  EXPECT_EQ(joined({{7, 3}, {7, 2}}), (Shape{7, 5}));
  EXPECT_THROW(joined({{7, 5, 3}}), engine::ShapeError);
}

TEST(LayerShapes, ConcatJoinsAnyAxis) {
  const std::vector<Shape> inputs{{7, 5, 3}, {2, 5, 3}};
  EXPECT_EQ(layers::concat(0)->output_shape(inputs), (Shape{9, 5, 3}));
  EXPECT_EQ(layers::concat(-3)->output_shape(inputs), (Shape{9, 5, 3}));
  EXPECT_VALUES(shape_error(*layers::concat(1), inputs), "axis 1, [7, 5, 3] [2, 5, 3]");
  EXPECT_VALUES(shape_error(*layers::concat(3), inputs), "axis [7, 5, 3], -3 2, 3");
}

TEST(LayerShapes, SlicesAreThoseOfPyTorch) {
  const std::vector<Shape> inputs{{7, 5, 8}};
  EXPECT_EQ(layers::slice({.first = 3, .count = 5})->output_shape(inputs), (Shape{7, 5, 5}));
  EXPECT_EQ(layers::slice({.axis = 0, .count = 4, .step = 2})->output_shape(inputs),
            (Shape{4, 5, 8}));
  EXPECT_VALUES(shape_error(*layers::slice({.axis = 0, .first = 1, .count = 4, .step = 2}), inputs),
                "8 entries axis 0, [7, 5, 8]");
  EXPECT_FALSE(layers::slice({.first = 3, .count = 5})->is_alias(inputs));
  EXPECT_TRUE(layers::slice({.count = 8})->is_alias(inputs));
}

TEST(LayerShapes, ReshapeKeepsTheElements) {
  const std::vector<Shape> inputs{{6, 4}};
  EXPECT_EQ(layers::reshape({2, -1, 3})->output_shape(inputs), (Shape{2, 4, 3}));
  EXPECT_EQ(layers::reshape({24})->output_shape(inputs), (Shape{24}));
  EXPECT_TRUE(layers::reshape({24})->is_alias(inputs));
  EXPECT_VALUES(shape_error(*layers::reshape({5, -1}), inputs), "24 elements [6, 4], [5, 4]");
}

TEST(LayerShapes, PermuteOrdersTheDimensions) {
  const std::vector<Shape> inputs{{6, 4, 1}};
  EXPECT_EQ(layers::permute({2, 0, 1})->output_shape(inputs), (Shape{1, 6, 4}));
  EXPECT_TRUE(layers::permute({2, 0, 1})->is_alias(inputs));  // moves no number
  EXPECT_EQ(layers::permute({1, -3, -1})->output_shape(inputs), (Shape{4, 6, 1}));
  EXPECT_FALSE(layers::permute({1, 0, 2})->is_alias(inputs));
  EXPECT_VALUES(shape_error(*layers::permute({0, 1, 1}), inputs), "order 3 dimensions [6, 4, 1]");
  EXPECT_VALUES(shape_error(*layers::permute({0, 1}), inputs), "order 3 dimensions [6, 4, 1]");
}

TEST(LayerShapes, ProductsKeepTheLeadingDimensions) {
  const auto product = [](const std::vector<Shape>& inputs, bool transpose_second) {
    return layers::matmul({.transpose_second = transpose_second})->output_shape(inputs);
  };
  EXPECT_EQ(product({{3, 4}, {4, 5}}, false), (Shape{3, 5}));
  EXPECT_EQ(product({{2, 6, 3, 4}, {2, 6, 5, 4}}, true), (Shape{2, 6, 3, 5}));
  EXPECT_THROW(product({{4}, {4}}, true), engine::ShapeError);
  EXPECT_THROW(product({{2, 3, 4}, {6, 4, 5}}, false), engine::ShapeError);
  EXPECT_THROW(product({{3, 4}}, false), engine::ShapeError);
  EXPECT_EQ(layers::dense(7)->output_shape(std::vector<Shape>{{2, 3, 5}}), (Shape{2, 3, 7}));
}

TEST(LayerShapes, ReduceRemovesOrKeepsAxes) {
  const std::vector<Shape> inputs{{7, 5, 3}};
  EXPECT_EQ(layers::reduce({.axes = {0, -1}})->output_shape(inputs), (Shape{5}));
  EXPECT_EQ(layers::reduce({.axes = {1}, .keep = true})->output_shape(inputs), (Shape{7, 1, 3}));
  EXPECT_EQ(layers::reduce({.axes = {0, 1, 2}})->output_shape(inputs), Shape{});
  EXPECT_VALUES(shape_error(*layers::reduce({.axes = {1, -2}}), inputs),
                "axes [7, 5, 3], axis -2 twice");
}

TEST(LayerShapes, GatherHasAnEntryForEachIndex) {
  const std::vector<Shape> inputs{{7, 5, 3}};
  EXPECT_EQ(layers::gather(1, {4, 0, 4, 4})->output_shape(inputs), (Shape{7, 4, 3}));
  EXPECT_VALUES(shape_error(*layers::gather(-1, {0, 3}), inputs), "3 entries axis -1, [7, 5, 3]");
}

TEST(LayerShapes, MultiplyHasThatOfTheLargerInput) {
  const auto product = [](const std::vector<Shape>& inputs) {
    return layers::multiply()->output_shape(inputs);
  };
  const Shape image{7, 5, 3};
  EXPECT_EQ(product({image, {3}}), image);
  EXPECT_EQ(product({{1, 1, 3}, image}), image);
  EXPECT_EQ(product({image, image}), image);
  EXPECT_EQ(product({{6}, {6}}), (Shape{6}));
  EXPECT_EQ(product({image, {7, 1, 3}}), image);
  EXPECT_EQ(product({{1, 5, 1}, {7, 1, 3}}), image);
  EXPECT_EQ(product({{}, {5, 1}}), (Shape{5, 1}));
  EXPECT_VALUES(shape_error(*layers::divide(), {image, {7, 3}}), "1 [7, 5, 3] [7, 3]");
  EXPECT_THROW(product({image}), engine::ShapeError);
}

TEST(LayerShapes, AChoiceHasThatOfAllInputs) {
  const engine::LayerPtr where = layers::where();
  const std::vector<Shape> inputs{{5, 1}, {7, 1, 3}, {}};
  EXPECT_EQ(where->output_shape(inputs), (Shape{7, 5, 3}));
  EXPECT_VALUES(shape_error(*where, {{7, 5, 3}, {5, 1}, {4}}), "1 [7, 5, 3] [5, 1] [4]");
  EXPECT_VALUES(shape_error(*layers::compare(layers::CompareFunction::kEqual), {{7, 5}, {4}}),
                "1 [7, 5] [4]");
}

TEST(LayerShapes, AGroupedConvolutionHasAWeightPerGroup) {
  const engine::LayerPtr layer =
      layers::conv2d({.out_channels = 8, .kernel = 5, .stride = 2, .padding = 2, .groups = 2});
  const std::vector<Shape> inputs{{9, 7, 6}};
  EXPECT_EQ(layer->output_shape(inputs), (Shape{5, 4, 8}));
  const std::vector<engine::ParameterSpec> parameters = layer->parameters(inputs);
  EXPECT_EQ(parameters[0].layout.file_shape, (Shape{8, 3, 5, 5}));
  EXPECT_EQ(parameters[0].layout.memory_shape(), (Shape{5, 5, 3, 8}));
  EXPECT_DOUBLE_EQ(parameters[0].initializer.value, 1 / std::sqrt(75.0));  // as in PyTorch
}

TEST(LayerOptions, OutOfRangeIsRefused) {
  EXPECT_THROW(layers::conv2d({.out_channels = 4, .groups = 0}), engine::ModelError);
  EXPECT_THROW(layers::conv2d({.out_channels = 4, .groups = 3}), engine::ModelError);
  EXPECT_THROW(layers::conv2d({.out_channels = 4, .kernel = {3, 0}}), engine::ModelError);
  EXPECT_THROW(layers::conv2d({.out_channels = 4, .dilation = 0}), engine::ModelError);
  EXPECT_THROW(layers::resize({.factor_height = 0}), engine::ModelError);
  EXPECT_THROW(layers::resize({.size = {3, 0}}), engine::ModelError);
  EXPECT_THROW(layers::pad({0, 0, -1, 0}), engine::ModelError);
  EXPECT_THROW(layers::pad(1, std::nan("")), engine::ModelError);
  EXPECT_NO_THROW(layers::pad(1, -HUGE_VAL));  // before a maximum
  EXPECT_THROW(layers::conv2d({.out_channels = 4, .padding = {0, 0, -1, 0}}), engine::ModelError);
  EXPECT_THROW(layers::conv_transpose({.out_channels = 4, .output_padding = 1}),
               engine::ModelError);
  EXPECT_THROW(layers::conv_transpose({.out_channels = 4, .stride = 2, .output_padding = {0, 2}}),
               engine::ModelError);
  EXPECT_THROW(layers::activation({engine::ops::ActivationKind::kLeakyRelu, -0.1}),
               engine::ModelError);
  EXPECT_THROW(layers::activation({engine::ops::ActivationKind::kClip, 2, 1}), engine::ModelError);
  EXPECT_THROW(layers::activation({engine::ops::ActivationKind::kPower, HUGE_VAL}),
               engine::ModelError);
  EXPECT_THROW(layers::scale_shift(std::nan(""), 0), engine::ModelError);
  EXPECT_THROW(layers::layer_norm(0, false), engine::ModelError);
  EXPECT_THROW(layers::self_attention({.heads = 4, .kv_heads = 3}), engine::ModelError);
  EXPECT_THROW(layers::dense(0), engine::ModelError);
  EXPECT_THROW(layers::conv2d({.out_channels = 4, .stride = 0}), engine::ModelError);
  EXPECT_THROW(layers::conv2d({.out_channels = 4, .padding = -1}), engine::ModelError);
  EXPECT_THROW(layers::max_pool2d({.window = 2, .padding = 2}), engine::ModelError);
  EXPECT_THROW(layers::average_pool2d({.window = 16}), engine::ModelError);
  EXPECT_THROW(layers::pad_channels(-1, 0), engine::ModelError);
  EXPECT_THROW(layers::slice({.first = -1, .count = 2}), engine::ModelError);
  EXPECT_THROW(layers::slice({.count = 0}), engine::ModelError);
  EXPECT_THROW(layers::slice({.step = 0}), engine::ModelError);
  EXPECT_THROW(layers::parameter({.shape = {3, 0}}), engine::ModelError);
  EXPECT_THROW(layers::parameter({.shape = {3}, .deviation = -1}), engine::ModelError);
  EXPECT_THROW(layers::constant({-1}), engine::ModelError);
  EXPECT_THROW(layers::reduce({.axes = {}}), engine::ModelError);
  EXPECT_THROW(layers::gather(0, {}), engine::ModelError);
  EXPECT_THROW(layers::gather(0, {2, -1}), engine::ModelError);
  EXPECT_THROW(layers::parameter({.shape = {3}})->output_shape(std::vector<Shape>{{3}}),
               engine::ShapeError);
  EXPECT_THROW(layers::reshape({-1, -1}), engine::ModelError);
  EXPECT_THROW(layers::reshape({0, 2}), engine::ModelError);
  EXPECT_THROW(layers::reshape({1, 1, 1, 1, 1, 1, 1, 1}), engine::ModelError);
  EXPECT_THROW(layers::shuffle_channels(0), engine::ModelError);
  EXPECT_THROW(layers::softmax_cross_entropy(1), engine::ModelError);
  EXPECT_THROW(layers::softmax_cross_entropy(std::nan("")), engine::ModelError);
  EXPECT_THROW(layers::dropout(1), engine::ModelError);
  EXPECT_THROW(layers::dropout(std::nan("")), engine::ModelError);
  EXPECT_THROW(layers::batch_norm2d({.eps = 0}), engine::ModelError);
  EXPECT_THROW(layers::group_norm({.groups = 0}), engine::ModelError);
  EXPECT_THROW(layers::group_norm({.groups = 2, .eps = 0}), engine::ModelError);
}

Graph small_graph() {
  return test_support::classifier({4, 4, 3}, [](Graph& g, NodeId x) {
    const NodeId c =
        g.add("c", layers::conv2d({.out_channels = 32, .kernel = 3, .padding = 1}), {x});
    return g.add("fc", layers::dense(10),
                 {g.add("", layers::flatten(), {g.add("n", layers::batch_norm2d(), {c})})});
  });
}

TEST(InitialValues, FollowPyTorchsDistributions) {
  const Graph graph = small_graph();
  ModelState state = ModelState::allocate(graph, engine::DType::kF32);
  state.initialize(graph, 5);
  const auto bounds = std::vector<double>{1 / std::sqrt(27.0),  1 / std::sqrt(27.0), -1, -1,
                                          1 / std::sqrt(512.0), 1 / std::sqrt(512.0)};
  std::size_t parameter = 0;
  for (const ModelState::Entry& entry : state.entries) {
    if (entry.kind != ModelState::Kind::kParameter) continue;
    const double bound = bounds[parameter++];
    if (bound < 0) continue;  // batch norm
    double sum = 0, squares = 0;
    for (const float value : state.view(entry).span<float>()) {
      EXPECT_LE(std::abs(value), bound);
      sum += value;
      squares += double{value} * value;
    }
    const auto n = static_cast<double>(state.view(entry).count());
    EXPECT_NEAR(sum / n / bound, 0, 4 / std::sqrt(3 * n)) << entry.name;
    EXPECT_NEAR(squares / n * 3 / (bound * bound), 1, 4 / std::sqrt(n)) << entry.name;
  }
  for (const float value : state.view(state.entries[2]).span<float>())
    EXPECT_EQ(value, 1) << state.entries[2].name;
  for (const float value : state.view(state.entries[3]).span<float>())
    EXPECT_EQ(value, 0) << state.entries[3].name;
  for (const float value : state.view(state.entries[5]).span<float>())
    EXPECT_EQ(value, 1) << state.entries[5].name;
}

// torchvision's residual networks: normal with variance 2 / (out * kh * kw).
TEST(InitialValues, OfAConvolutionMayBeNormalByFanOut) {
  const Graph graph = test_support::classifier({4, 4, 3}, [](Graph& g, NodeId x) {
    const layers::Conv2dOptions options{
        .out_channels = 64, .padding = 1, .bias = false, .init = layers::ConvInit::kNormalFanOut};
    return g.add(
        "fc", layers::dense(10),
        {g.add("", layers::global_average_pool(), {g.add("c", layers::conv2d(options), {x})})});
  });
  ModelState state = ModelState::allocate(graph, engine::DType::kF32);
  state.initialize(graph, 5);
  const auto weight = state.view(state.entries[0]).span<float>();
  const double n = static_cast<double>(weight.size()), deviation = std::sqrt(2.0 / (64 * 9));
  double sum = 0, squares = 0, beyond = 0;
  for (const float value : weight) {
    sum += value;
    squares += double{value} * value;
    beyond += std::abs(value) > 2 * deviation ? 1 : 0;
  }
  EXPECT_NEAR(sum / n / deviation, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(squares / n / (deviation * deviation), 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(beyond / n, 0.0455, 4 * std::sqrt(0.0455 / n));  // a normal distribution has tails
}

// Training minimizes the smoothed loss; what an evaluation reports is the plain one.
TEST(LabelSmoothing, ActsInTrainingAlone) {
  const auto losses = [](double smoothing) {
    Graph graph;
    const NodeId x = graph.input("input", {2, 1, 3}),
                 labels = graph.input("labels", {}, engine::DType::kI32);
    const NodeId logits =
        graph.add("fc", layers::dense(4), {graph.add("", layers::flatten(), {x})});
    graph.set_outputs(logits,
                      graph.add("", layers::softmax_cross_entropy(smoothing), {logits, labels}));
    test_support::Harness harness(std::move(graph), {.max_batch = 3, .dtype = engine::DType::kF64});
    const test_support::RandomBatch batch(harness.graph, 3);
    const double trained = harness.executor.forward(batch.view(), true).loss_sum;
    return std::pair{trained, harness.executor.forward(batch.view(), false).loss_sum};
  };
  const auto plain = losses(0), smoothed = losses(0.2);
  EXPECT_EQ(plain.first, plain.second);
  EXPECT_EQ(smoothed.second, plain.second);
  EXPECT_GT(std::abs(smoothed.first - plain.first), 1e-3);
}

// Batches in which nothing counts have neither a loss nor gradients, whatever the logits are.
TEST(PositionLoss, ABatchWithoutLabelsHasNoLossAndNoGradient) {
  Graph graph;
  const NodeId x = graph.input("input", {2, 3, 2}),
               labels = graph.input("labels", {2, 3}, engine::DType::kI32);
  const NodeId logits = graph.add("c", layers::conv2d({.out_channels = 4, .padding = 1}), {x});
  graph.set_outputs(logits, graph.add("", layers::softmax_cross_entropy(), {logits, labels}));
  test_support::Harness harness(std::move(graph), {.max_batch = 3});
  test_support::RandomBatch batch(harness.graph, 3);
  const engine::BatchResult all = harness.executor.forward(batch.view(), true);
  EXPECT_EQ(all.rows, 18);
  std::ranges::fill(batch.labels, engine::ops::kNoLabel);
  const std::vector<double> gradients = test_support::gradients(harness, batch.view());
  EXPECT_EQ(gradients, std::vector<double>(gradients.size(), 0));
  const engine::BatchResult none = harness.executor.forward(batch.view(), false);
  EXPECT_EQ(none.loss_sum, 0);
  EXPECT_EQ(none.rows, 0);
  EXPECT_EQ(none.correct, 0);
  EXPECT_EQ(none.top5, 0);
}

TEST(PositionLoss, LabelsHaveThePositionsOfTheLogits) {
  const auto shape = [](const Shape& logits, const Shape& labels) {
    const Shape inputs[] = {logits, labels};
    return layers::softmax_cross_entropy()->output_shape(inputs);
  };
  EXPECT_EQ(shape({4, 3, 5}, {4, 3}), (Shape{4, 3}));
  EXPECT_EQ(shape({1, 7, 5}, {7}), Shape{7}) << "a text as an image of height 1";
  EXPECT_THROW(shape({4, 3, 5}, {3, 4}), engine::ShapeError);
  EXPECT_THROW(shape({4, 3, 5}, {12}), engine::ShapeError);
}

TEST(InitialValues, DependOnSeedAndNameButNotOnDType) {
  const Graph graph = small_graph();
  ModelState single = ModelState::allocate(graph, engine::DType::kF32),
             again = ModelState::allocate(graph, engine::DType::kF32),
             twice = ModelState::allocate(graph, engine::DType::kF64);
  single.initialize(graph, 5);
  twice.initialize(graph, 5);
  again.initialize(graph, 6);
  for (const ModelState::Entry& entry : single.entries) {
    if (entry.kind == ModelState::Kind::kCounter) continue;
    EXPECT_EQ(test_support::to_doubles(single.view(entry)),
              test_support::to_doubles(twice.view(entry)))
        << entry.name;
  }
  EXPECT_NE(test_support::to_doubles(single.view(single.entries[0])),
            test_support::to_doubles(again.view(again.entries[0])));
  EXPECT_NE(test_support::to_doubles(single.view(single.entries[1]))[0],
            test_support::to_doubles(single.view(single.entries[0]))[0]);
}

TEST(FileLayout, ConvolutionWeightsAreOutInHeightWidth) {
  const Graph graph = small_graph();
  ModelState state = ModelState::allocate(graph, engine::DType::kF32);
  const ModelState::Entry& entry = state.entries[0];
  ASSERT_EQ(entry.name, "c.weight");
  EXPECT_EQ(state.layout(entry).file_shape, (Shape{32, 3, 3, 3}));
  EXPECT_EQ(state.view(entry).shape, (Shape{3, 3, 3, 32}));
  std::vector<float> file(32 * 3 * 3 * 3);
  for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<float>(i);
  state.layout(entry).to_memory(file.data(), state.view(entry).data, sizeof(float));
  const auto memory = state.view(entry).span<float>();
  const auto at = [&](std::size_t o, std::size_t i, std::size_t y, std::size_t x) {
    return memory[((y * 3 + x) * 3 + i) * 32 + o];
  };
  EXPECT_EQ(at(5, 1, 2, 0), file[((5 * 3 + 1) * 3 + 2) * 3 + 0]);
  EXPECT_EQ(at(31, 2, 0, 1), file[((31 * 3 + 2) * 3 + 0) * 3 + 1]);
}

// logits = the sample itself (4 values), through layers that a case adds.
std::vector<double> logits_of(Graph graph, bool training, std::int64_t count) {
  const NodeId logits = graph.logits();
  test_support::Harness harness(
      std::move(graph), {.max_batch = count, .dtype = engine::DType::kF64, .watched = logits});
  const test_support::RandomBatch batch(harness.graph, count);
  harness.executor.forward(batch.view(), training);
  return test_support::to_doubles(harness.executor.logits());
}

TEST(Flatten, PutsChannelsFirst) {
  Graph graph = test_support::classifier(
      {2, 1, 3}, [](Graph& g, NodeId x) { return g.add("", layers::flatten(), {x}); });
  const test_support::RandomBatch batch(graph, 1);
  const std::vector<float>& s = batch.samples;  // (h, c): h0c0 h0c1 h0c2 h1c0 h1c1 h1c2
  const std::vector<double> expected{s[0], s[3], s[1], s[4], s[2], s[5]};
  EXPECT_EQ(logits_of(std::move(graph), false, 1), expected);
}

TEST(Dropout, ScalesWhatItKeepsAndIsOffInInference) {
  const auto graph = [] {
    return test_support::classifier(
        {1000}, [](Graph& g, NodeId x) { return g.add("drop", layers::dropout(0.25), {x}); });
  };
  const test_support::RandomBatch batch(graph(), 4);
  const std::vector<double> trained = logits_of(graph(), true, 4),
                            inferred = logits_of(graph(), false, 4);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_EQ(inferred[i], batch.samples[i]);
    if (trained[i] == 0) continue;
    ++kept;
    EXPECT_NEAR(trained[i], batch.samples[i] / 0.75, 1e-12);
  }
  EXPECT_NEAR(static_cast<double>(kept), 3000, 4 * std::sqrt(4000 * 0.25 * 0.75));
}

TEST(Dropout, DoesNotDependOnHowTheBatchIsSplit) {
  const auto make = [] {
    return test_support::classifier({40}, [](Graph& g, NodeId x) {
      return g.add("fc", layers::dense(5), {g.add("", layers::dropout(0.5), {x})});
    });
  };
  const auto run = [&](std::int64_t first, std::int64_t count, int threads) {
    Graph graph = make();
    const NodeId logits = graph.logits();
    test_support::Harness harness(
        std::move(graph),
        {.max_batch = 8, .dtype = engine::DType::kF64, .threads = threads, .watched = logits});
    const test_support::RandomBatch batch(harness.graph, 8);
    harness.executor.forward(batch.slice(first, count), true);
    return test_support::to_doubles(harness.executor.logits());
  };
  std::vector<double> parts = run(0, 3, 1);
  for (const double value : run(3, 5, 2)) parts.push_back(value);
  EXPECT_LT(test_support::difference(run(0, 8, 1), parts), 1e-14);
}

TEST(Dropout, DrawsAnewInEachEpoch) {
  Graph graph = test_support::classifier(
      {64}, [](Graph& g, NodeId x) { return g.add("", layers::dropout(0.5), {x}); });
  const NodeId logits = graph.logits();
  test_support::Harness harness(std::move(graph), {.max_batch = 2, .watched = logits});
  const test_support::RandomBatch batch(harness.graph, 2);
  engine::BatchView view = batch.view();
  harness.executor.forward(view, true);
  const std::vector<double> first = test_support::to_doubles(harness.executor.logits());
  view.epoch = 1;
  harness.executor.forward(view, true);
  EXPECT_NE(test_support::to_doubles(harness.executor.logits()), first);
}

TEST(BatchNorm, KeepsRunningStatisticsAsPyTorchDoes) {
  Graph graph = test_support::classifier({2, 2, 1}, [](Graph& g, NodeId x) {
    return g.add("", layers::flatten(), {g.add("n", layers::batch_norm2d(), {x})});
  });
  const NodeId logits = graph.logits();
  test_support::Harness harness(std::move(graph),
                                {.max_batch = 3, .dtype = engine::DType::kF64, .watched = logits});
  const test_support::RandomBatch batch(harness.graph, 3);
  double mean = 0, squares = 0;
  for (const float value : batch.samples) mean += value / 12.0;
  for (const float value : batch.samples) squares += (value - mean) * (value - mean);
  harness.executor.forward(batch.view(), true);
  const ModelState& state = harness.state;
  ASSERT_EQ(state.entries[2].name, "n.running_mean");
  EXPECT_NEAR(state.view(state.entries[2]).as<double>()[0], 0.1 * mean, 1e-15);
  EXPECT_NEAR(state.view(state.entries[3]).as<double>()[0], 0.9 + 0.1 * squares / 11, 1e-15);
  EXPECT_EQ(state.view(state.entries[4]).as<std::int64_t>()[0], 1);
  const std::vector<double> y = test_support::to_doubles(harness.executor.logits());
  EXPECT_NEAR(y[5], (batch.samples[5] - mean) / std::sqrt(squares / 12 + 1e-5), 1e-12);
}

}  // namespace
