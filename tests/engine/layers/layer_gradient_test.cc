// Backward of every layer kind against central differences in float64.
#include <gtest/gtest.h>

#include <functional>

#include "engine/layers/general/general_layers.h"
#include "engine/layers/layers.h"
#include "engine/layers/spatial/spatial_layers.h"
#include "tests/engine/graph/graph_harness.h"

namespace {

using engine::Graph;
using engine::NodeId;
namespace layers = engine::layers;

NodeId head(Graph& graph, NodeId image) {
  return graph.add("head", layers::dense(4), {graph.add("", layers::flatten(), {image})});
}

struct Case {
  const char* name;
  // The layers between a first convolution and the logits; x is [6, 5, 3].
  std::function<NodeId(Graph& graph, NodeId x)> wire;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }  // for the test library

// A layer between the convolution and the head.
Case alone(const char* name, engine::LayerPtr (*make)()) {
  return {name, [make](Graph& g, NodeId x) { return head(g, g.add("n", make(), {x})); }};
}
// A function of numbers between 0.5 and 1.5.
Case of_positive(const char* name, const engine::ops::Activation& function) {
  return {name, [function](Graph& g, NodeId x) {
            const NodeId sigmoid =
                g.add("", layers::activation({engine::ops::ActivationKind::kSigmoid}), {x});
            const NodeId positive = g.add("", layers::scale_shift(1, 0.5), {sigmoid});
            return head(g, g.add("", layers::activation(function), {positive}));
          }};
}
// Another convolution that keeps the map.
NodeId conv(Graph& g, NodeId x, std::int64_t channels) {
  return g.add("c", layers::conv2d({.out_channels = channels, .padding = 1}), {x});
}
NodeId norm(Graph& g, NodeId x) { return g.add("n", layers::batch_norm2d(), {x}); }
NodeId relu(Graph& g, NodeId x) { return g.add("", layers::relu(), {x}); }
NodeId pooled(Graph& g, NodeId x) { return g.add("", layers::global_average_pool(), {x}); }

const Case kCases[] = {
    alone(
        "conv2d_stride_2_padded",
        [] { return layers::conv2d({.out_channels = 4, .kernel = 3, .stride = 2, .padding = 1}); }),
    alone("conv2d_5x5_without_bias",
          [] {
            return layers::conv2d({.out_channels = 2, .kernel = 5, .padding = 2, .bias = false});
          }),
    alone("conv2d_1x1_stride_2",
          [] { return layers::conv2d({.out_channels = 4, .kernel = 1, .stride = 2}); }),
    alone(
        "conv2d_7x7_stride_2",
        [] { return layers::conv2d({.out_channels = 4, .kernel = 7, .stride = 2, .padding = 3}); }),
    alone(
        "conv2d_depthwise_stride_2",
        [] { return layers::conv2d({.out_channels = 3, .stride = 2, .padding = 1, .groups = 3}); }),
    alone("conv2d_5x5_with_two_outputs_for_a_channel",
          [] {
            return layers::conv2d(
                {.out_channels = 6, .kernel = 5, .padding = 2, .bias = false, .groups = 3});
          }),
    alone("conv2d_3x1_stride_1x2",
          [] {
            return layers::conv2d(
                {.out_channels = 4, .kernel = {3, 1}, .stride = {1, 2}, .padding = {1, 0}});
          }),
    alone("conv2d_dilated",
          [] { return layers::conv2d({.out_channels = 4, .padding = 2, .dilation = 2}); }),
    alone("conv2d_of_groups_padded_at_one_end",
          [] {
            return layers::conv2d({.out_channels = 6,
                                   .kernel = 2,
                                   .padding = {0, 0, 1, 1},
                                   .bias = false,
                                   .groups = 3,
                                   .dilation = {1, 2}});
          }),
    alone("conv_transpose_stride_2",
          [] { return layers::conv_transpose({.out_channels = 4, .kernel = 2, .stride = 2}); }),
    alone("conv_transpose_of_groups",
          [] {
            return layers::conv_transpose({.out_channels = 6,
                                           .kernel = {3, 2},
                                           .stride = {2, 1},
                                           .padding = {1, 0, 0, 1},
                                           .output_padding = {1, 0},
                                           .groups = 3,
                                           .dilation = {1, 2}});
          }),
    alone("conv_transpose_without_bias",
          [] { return layers::conv_transpose({.out_channels = 2, .padding = 1, .bias = false}); }),
    alone("resize_nearest_by_3_and_half",
          [] { return layers::resize({.factor_height = 3, .factor_width = 0.5}); }),
    alone("resize_bilinear_by_2", [] { return layers::resize({.linear = true}); }),
    alone("resize_bilinear_to_a_size",
          [] {
            return layers::resize({.linear = true, .size = {4, 9}});
          }),
    alone("pad",
          [] {
            return layers::pad({1, 2, 0, 3}, 0.5);
          }),
    alone("batch_norm2d", [] { return layers::batch_norm2d(); }),
    alone("batch_norm2d_without_parameters",
          [] { return layers::batch_norm2d({.affine = false}); }),
    alone("group_norm_of_one_group", [] { return layers::group_norm({.groups = 1}); }),
    alone("relu", [] { return layers::relu(); }),
    alone("max_pool2d", [] { return layers::max_pool2d({.window = 2}); }),
    alone("max_pool2d_overlapping",
          [] { return layers::max_pool2d({.window = 3, .stride = 2, .padding = 1}); }),
    alone("max_pool2d_in_ceil_mode",
          [] { return layers::max_pool2d({.window = 2, .ceil_mode = true}); }),
    alone("average_pool2d", [] { return layers::average_pool2d({.window = 2}); }),
    alone("average_pool2d_overlapping",
          [] { return layers::average_pool2d({.window = 3, .stride = 2, .padding = 1}); }),
    alone("average_pool2d_in_ceil_mode",
          [] { return layers::average_pool2d({.window = 2, .ceil_mode = true}); }),
    alone("pad_channels", [] { return layers::pad_channels(1, 2); }),
    alone("pad_channels_by_none", [] { return layers::pad_channels(0, 0); }),
    alone("relu6", [] { return layers::activation({engine::ops::ActivationKind::kRelu6}); }),
    alone("silu", [] { return layers::activation({engine::ops::ActivationKind::kSilu}); }),
    alone("sigmoid", [] { return layers::activation({engine::ops::ActivationKind::kSigmoid}); }),
    alone("hard_sigmoid",
          [] { return layers::activation({engine::ops::ActivationKind::kHardSigmoid}); }),
    alone("hard_swish",
          [] { return layers::activation({engine::ops::ActivationKind::kHardSwish}); }),
    alone("leaky_relu",
          [] {
            return layers::activation({engine::ops::ActivationKind::kLeakyRelu, 0.1});
          }),
    alone("tanh", [] { return layers::activation({engine::ops::ActivationKind::kTanh}); }),
    alone("erf", [] { return layers::activation({engine::ops::ActivationKind::kErf}); }),
    alone("abs", [] { return layers::activation({engine::ops::ActivationKind::kAbs}); }),
    alone("negate", [] { return layers::activation({engine::ops::ActivationKind::kNegate}); }),
    alone("softplus", [] { return layers::activation({engine::ops::ActivationKind::kSoftplus}); }),
    alone("elu", [] { return layers::activation({engine::ops::ActivationKind::kElu}); }),
    alone("mish", [] { return layers::activation({engine::ops::ActivationKind::kMish}); }),
    alone("softsign", [] { return layers::activation({engine::ops::ActivationKind::kSoftsign}); }),
    alone("clip",
          [] {
            return layers::activation({engine::ops::ActivationKind::kClip, -0.2, 0.3});
          }),
    alone("exp", [] { return layers::activation({engine::ops::ActivationKind::kExp}); }),
    alone("scale_shift", [] { return layers::scale_shift(-0.7, 0.2); }),
    of_positive("log", {engine::ops::ActivationKind::kLog}),
    of_positive("sqrt", {engine::ops::ActivationKind::kSqrt}),
    of_positive("reciprocal", {engine::ops::ActivationKind::kReciprocal}),
    of_positive("square", {engine::ops::ActivationKind::kPower, 2}),
    of_positive("power", {engine::ops::ActivationKind::kPower, -1.5}),
    alone("layer_norm", [] { return layers::layer_norm(); }),
    alone("layer_norm_without_parameters", [] { return layers::layer_norm(1e-3, false); }),
    {"layer_norm_without_parameters_read_twice",
     [](Graph& g, NodeId x) {
       return head(g,
                   g.add("", layers::add(), {g.add("", layers::layer_norm(0.1, false), {x}), x}));
     }},
    alone("dropout", [] { return layers::dropout(0.4); }),
    alone("dropout_of_rate_0", [] { return layers::dropout(0); }),
    {"flatten", head},
    {"global_average_pool",
     [](Graph& g, NodeId x) { return g.add("d", layers::dense(4), {pooled(g, x)}); }},
    {"dense_without_bias",
     [](Graph& g, NodeId x) { return g.add("d", layers::dense(4, false), {pooled(g, x)}); }},
    {"dense_with_relu",
     [](Graph& g, NodeId x) {
       const NodeId hidden = g.add("d", layers::dense(8), {g.add("", layers::flatten(), {x})});
       return g.add("e", layers::dense(4), {relu(g, hidden)});
     }},
    {"dense_of_pixels_with_relu",
     [](Graph& g, NodeId x) { return head(g, relu(g, g.add("d", layers::dense(5), {x}))); }},
    alone("softmax", [] { return layers::softmax(); }),
    {"softmax_read_twice",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::multiply(), {g.add("", layers::softmax(), {x}), x}));
     }},
    {"matmul",
     [](Graph& g, NodeId x) {
       const NodeId scores =
           g.add("", layers::matmul({.transpose_second = true, .scale = 0.7}), {x, conv(g, x, 3)});
       return head(g, g.add("", layers::matmul(), {scores, x}));
     }},
    {"matmul_of_one_tensor",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::matmul({.transpose_second = true, .scale = 2}), {x, x}));
     }},
    {"convolve_by_a_view_of_the_image",
     [](Graph& g, NodeId x) {
       const NodeId weight = g.add("", layers::reshape({5, 3, 2, 3}), {x});
       const layers::ConvolveOptions windows{.stride = {2, 1}, .padding = {0, 1, 2, 1}};
       return head(g, g.add("", layers::convolve(windows), {x, weight}));
     }},
    {"convolve_by_standardized_groups",
     [](Graph& g, NodeId x) {
       const NodeId w = g.add("w", layers::parameter({.shape = {6, 2, 3, 2}, .deviation = 1}), {}),
                    rows = g.add("", layers::layer_norm(0.1, false),
                                 {g.add("", layers::reshape({6, 12}), {w})}),
                    weight = g.add("", layers::reshape({6, 2, 3, 2}), {rows});
       const NodeId images = conv(g, x, 6);
       return head(
           g, g.add("", layers::convolve({.dilation = {1, 2}, .groups = 3}), {images, weight}));
     }},
    {"batch_norm2d_with_relu", [](Graph& g, NodeId x) { return head(g, relu(g, norm(g, x))); }},
    {"batch_norm2d_with_residual",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::add(), {norm(g, x), x}));
     }},
    {"batch_norm2d_with_residual_and_relu",
     [](Graph& g, NodeId x) {
       return head(g, relu(g, g.add("", layers::add(), {norm(g, conv(g, x, 3)), x})));
     }},
    {"group_norm",
     [](Graph& g, NodeId x) {
       return head(g, g.add("n", layers::group_norm({.groups = 3}), {conv(g, x, 6)}));
     }},
    {"group_norm_without_parameters",
     [](Graph& g, NodeId x) {
       const NodeId n =
           g.add("", layers::group_norm({.groups = 3, .affine = false}), {conv(g, x, 6)});
       return head(g, relu(g, g.add("n", layers::batch_norm2d({.affine = false}), {n})));
     }},
    {"pad_channels_of_a_tensor_that_others_read",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::add(),
                            {norm(g, conv(g, x, 5)), g.add("", layers::pad_channels(0, 2), {x})}));
     }},
    {"slice_of_a_tensor_that_others_read",  // the two branches of a block of ShuffleNet
     [](Graph& g, NodeId x) {
       const NodeId wide = conv(g, x, 6);
       const NodeId left = g.add("", layers::slice({.count = 2}), {wide}),
                    right = g.add("", layers::slice({.first = 2, .count = 4}), {wide});
       const NodeId all = g.add("", layers::concat(), {left, norm(g, right)});
       return head(g,
                   g.add("", layers::add(), {g.add("", layers::shuffle_channels(2), {all}), wide}));
     }},
    {"shuffle_channels_of_a_tensor_that_others_read",
     [](Graph& g, NodeId x) {
       const NodeId wide = conv(g, x, 6);
       return head(g, g.add("", layers::add(),
                            {relu(g, wide), g.add("", layers::shuffle_channels(3), {wide})}));
     }},
    {"slice_and_shuffle_channels_of_vectors",
     [](Graph& g, NodeId x) {
       const NodeId means = g.add("h", layers::dense(6), {pooled(g, x)});
       const NodeId part = g.add("", layers::slice({.first = 1, .count = 4}), {means});
       return g.add("d", layers::dense(4), {g.add("", layers::shuffle_channels(2), {part})});
     }},
    {"concat_of_three_that_others_read",
     [](Graph& g, NodeId x) {
       const NodeId wide = conv(g, x, 4);
       const NodeId all = g.add("", layers::concat(), {x, wide, x});
       return head(g, g.add("", layers::add(), {relu(g, all), norm(g, all)}));
     }},
    {"concat_of_rows",
     [](Graph& g, NodeId x) {
       const NodeId part = g.add("", layers::slice({.axis = 0, .first = 1, .count = 2}), {x});
       return head(g, g.add("", layers::concat(0), {x, part, conv(g, x, 3)}));
     }},
    {"slice_of_every_second_row",
     [](Graph& g, NodeId x) {
       const NodeId part =
           g.add("", layers::slice({.axis = -3, .first = 1, .count = 3, .step = 2}), {x});
       return head(g, g.add("", layers::concat(0), {part, relu(g, x)}));
     }},
    {"permute_of_a_tensor_that_others_read",
     [](Graph& g, NodeId x) {
       const NodeId windows = g.add("", layers::reshape({3, 2, -1, 3}), {x});
       const NodeId moved = g.add("", layers::permute({2, 0, 3, 1}), {windows});
       const NodeId flat = g.add("", layers::reshape({90}), {moved});
       const NodeId all = g.add("", layers::concat(), {flat, g.add("", layers::flatten(), {x})});
       return g.add("d", layers::dense(4), {all});
     }},
    {"permute_of_windows",
     [](Graph& g, NodeId x) {
       const NodeId turned = g.add("", layers::permute({-2, 0, -1}), {x});
       const NodeId back = g.add("", layers::permute({1, 0, 2}), {turned});
       return head(g, g.add("", layers::add(), {back, conv(g, x, 3)}));
     }},
    {"concat_of_vectors",
     [](Graph& g, NodeId x) {
       const NodeId means = pooled(g, x), flat = g.add("", layers::flatten(), {x});
       return g.add("d", layers::dense(4), {g.add("", layers::concat(), {means, flat})});
     }},
    {"conv2d_of_two_groups",
     [](Graph& g, NodeId x) {
       const layers::Conv2dOptions options{.out_channels = 6, .padding = 1, .groups = 2};
       return head(g, g.add("g", layers::conv2d(options), {conv(g, x, 4)}));
     }},
    {"add_of_a_row_and_a_column",
     [](Graph& g, NodeId x) {
       const NodeId row = g.add("", layers::slice({.axis = 0, .first = 2}), {x}),
                    column = g.add("", layers::slice({.axis = 1, .first = 1}), {norm(g, x)});
       return head(g, g.add("", layers::add(), {row, column}));
     }},
    {"add_of_a_vector_to_a_tensor_that_others_read",
     [](Graph& g, NodeId x) {
       const NodeId sum = g.add("", layers::add(), {conv(g, x, 3), pooled(g, x)});
       return head(g, g.add("", layers::add(), {sum, x}));
     }},
    {"add_of_an_image_after_a_norm",  // an addition that cannot be fused
     [](Graph& g, NodeId x) {
       const NodeId row = g.add("", layers::slice({.axis = 0, .first = 2}), {x});
       return head(g, relu(g, g.add("", layers::add(), {row, norm(g, x)})));
     }},
    {"subtract_of_one_tensor_and_its_row",
     [](Graph& g, NodeId x) {
       const NodeId row = g.add("", layers::slice({.axis = 0, .first = 2}), {x});
       return head(g, g.add("", layers::subtract(), {row, x}));
     }},
    {"subtract_of_two",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::subtract(), {conv(g, x, 3), norm(g, x)}));
     }},
    {"multiply_of_a_column",
     [](Graph& g, NodeId x) {
       const NodeId column = g.add("", layers::slice({.axis = 1, .first = 1}), {x});
       return head(g, g.add("", layers::multiply(), {column, norm(g, x)}));
     }},
    {"divide_of_a_tensor_by_a_column",
     [](Graph& g, NodeId x) {
       const NodeId scales =
           g.add("", layers::activation({engine::ops::ActivationKind::kSigmoid}), {x});
       const NodeId column = g.add("", layers::slice({.axis = 2, .first = 1}), {scales});
       return head(g, g.add("", layers::divide(), {x, column}));
     }},
    {"divide_of_a_vector_by_a_tensor",
     [](Graph& g, NodeId x) {
       const NodeId scales =
           g.add("", layers::activation({engine::ops::ActivationKind::kSigmoid}), {norm(g, x)});
       return head(g, g.add("", layers::divide(), {pooled(g, x), scales}));
     }},
    {"where_of_a_comparison",  // which a column expands
     [](Graph& g, NodeId x) {
       const NodeId column = g.add("", layers::slice({.axis = 1, .first = 1}), {norm(g, x)});
       const NodeId above =
           g.add("", layers::compare(layers::CompareFunction::kGreater), {x, column});
       return head(g, g.add("", layers::where(), {above, conv(g, x, 3), column}));
     }},
    {"where_of_a_row_for_all",
     [](Graph& g, NodeId x) {
       const NodeId row = g.add("", layers::slice({.axis = 0, .first = 2}), {conv(g, x, 3)}),
                    limit = g.add("limit", layers::constant({3}, 0.1), {});
       const NodeId below =
           g.add("", layers::compare(layers::CompareFunction::kLessEqual), {row, limit});
       return head(g, g.add("", layers::where(), {below, x, pooled(g, row)}));
     }},
    {"where_of_its_own_condition",
     [](Graph& g, NodeId x) {
       const NodeId positive = relu(g, conv(g, x, 3));
       return head(g, g.add("", layers::where(), {positive, positive, x}));
     }},
    {"parameter_for_every_sample",  // a class token and embeddings of positions
     [](Graph& g, NodeId x) {
       const NodeId pixels = g.add("", layers::reshape({-1, 3}), {x}),
                    token = g.add("t", layers::parameter({.shape = {1, 3}, .deviation = 0.5}), {});
       const NodeId all = g.add("", layers::concat(0), {token, pixels}),
                    places =
                        g.add("p", layers::parameter({.shape = {31, 3}, .deviation = 0.5}), {});
       const NodeId placed = g.add("", layers::add(), {all, places});
       return g.add("d", layers::dense(4), {g.add("", layers::reshape({-1}), {placed})});
     }},
    {"constant_and_a_number",
     [](Graph& g, NodeId x) {
       const NodeId two = g.add("two", layers::constant({}, 2), {}),
                    scale = g.add(
                        "s", layers::parameter({.shape = {}, .deviation = 0, .initial = 3}), {});
       const NodeId scaled = g.add("", layers::multiply(), {x, scale});
       return head(g, g.add("", layers::divide(), {scaled, two}));
     }},
    {"reduce_mean_of_two_axes",
     [](Graph& g, NodeId x) {
       const NodeId mean =
           g.add("", layers::reduce({.axes = {0, -1}, .keep = true}), {conv(g, x, 4)});
       return head(g, g.add("", layers::subtract(), {mean, x}));
     }},
    {"reduce_sum_of_rows_that_others_read",
     [](Graph& g, NodeId x) {
       const NodeId wide = conv(g, x, 4);
       const NodeId sum = g.add(
           "", layers::reduce({.function = layers::ReduceFunction::kSum, .axes = {1}}), {wide});
       const NodeId row = g.add("", layers::reshape({6, 1, 4}), {sum});
       return head(g, g.add("", layers::add(), {wide, row}));
     }},
    {"reduce_max_of_pixels_that_others_read",
     [](Graph& g, NodeId x) {
       const NodeId wide = conv(g, x, 4);
       const NodeId most = g.add(
           "", layers::reduce({.function = layers::ReduceFunction::kMax, .axes = {1, 0}}), {wide});
       return head(g, g.add("", layers::add(), {wide, most}));
     }},
    {"reduce_max_of_channels",
     [](Graph& g, NodeId x) {
       const NodeId most =
           g.add("", layers::reduce({.function = layers::ReduceFunction::kMax, .axes = {2}}), {x});
       return g.add("d", layers::dense(4), {g.add("", layers::reshape({-1}), {most})});
     }},
    {"gather_of_rows_some_of_them_twice",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::gather(0, {5, 1, 1, 0, 5, 1}), {x}));
     }},
    {"gather_of_channels_that_others_read",
     [](Graph& g, NodeId x) {
       const NodeId wide = conv(g, x, 4);
       return head(g, g.add("", layers::add(),
                            {wide, g.add("", layers::gather(-1, {3, 3, 0, 2}), {wide})}));
     }},
    {"multiply_of_two",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::multiply(), {conv(g, x, 3), norm(g, x)}));
     }},
    {"multiply_of_one_tensor",
     [](Graph& g, NodeId x) {
       return head(g, g.add("", layers::multiply(), {x, x}));
     }},
    {"multiply_of_channels",  // squeeze and excitation
     [](Graph& g, NodeId x) {
       const NodeId squeezed = g.add("s", layers::dense(3), {pooled(g, x)});
       const NodeId scales =
           g.add("", layers::activation({engine::ops::ActivationKind::kSigmoid}), {squeezed});
       return head(g, g.add("", layers::multiply(), {x, scales}));
     }},
    {"multiply_of_a_pixel_before_the_image",
     [](Graph& g, NodeId x) {
       const NodeId pixel = g.add(
           "s", layers::conv2d({.out_channels = 3, .kernel = 3, .stride = 6, .padding = 1}), {x});
       return head(g, g.add("", layers::multiply(), {pixel, x}));
     }},
    {"add_of_one_tensor",
     [](Graph& g, NodeId x) { return head(g, g.add("", layers::add(), {x, x})); }},
    {"add_of_two",
     [](Graph& g,
        NodeId x) { return head(g, g.add("", layers::add(), {relu(g, x), conv(g, x, 3)})); }},
};

class LayerGradient : public testing::TestWithParam<Case> {};

TEST_P(LayerGradient, AgreesWithFiniteDifferences) {
  for (const bool fuse : {true, false}) {
    Graph graph = test_support::classifier({6, 5, 2}, [](Graph& g, NodeId x) {
      return GetParam().wire(
          g, g.add("first", layers::conv2d({.out_channels = 3, .kernel = 3, .padding = 1}), {x}));
    });
    EXPECT_LT(test_support::gradient_error(std::move(graph), 3, {.max_batch = 4, .fuse = fuse}),
              1e-7)
        << "fuse " << fuse;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LayerGradient, testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

// A checker that cannot fail checks nothing: with the wrong sign of one layer's gradient it must
// complain.
class WrongRelu final : public engine::Layer {
 public:
  WrongRelu() : Layer({.kind = "wrong_relu", .backward_needs = {.output = true}}) {}
  engine::Shape output_shape(std::span<const engine::Shape> inputs) const override {
    return inputs[0];
  }
  void forward(const engine::LayerRun& run) const override { right_->forward(run); }
  void backward(const engine::LayerRun& run) const override {
    right_->backward(run);
    for (double& value : run.gradients.inputs[0].span<double>()) value *= 1.001;
  }

 private:
  engine::LayerPtr right_ = layers::relu();
};

TEST(GradientCheck, NoticesAWrongGradient) {
  Graph graph = test_support::classifier({6, 5, 2}, [](Graph& g, NodeId x) {
    const NodeId first =
        g.add("first", layers::conv2d({.out_channels = 3, .kernel = 3, .padding = 1}), {x});
    return head(g, g.add("", std::make_unique<WrongRelu>(), {first}));
  });
  EXPECT_GT(test_support::gradient_error(std::move(graph), 3), 1e-6);
}

}  // namespace
