// Creates each kind of layer from its TOML table, with one function per kind. docs/toml.md lists
// the options and defaults that the functions read.
#include "models/layer_kinds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/layers/general/general_layers.h"
#include "engine/layers/layers.h"
#include "engine/layers/spatial/spatial_layers.h"
#include "io/base/text/text_parts.h"

namespace models {
namespace {

namespace layers = engine::layers;

engine::LayerPtr make_dense(Options& options, std::int64_t classes) {
  const std::int64_t out = options.integer_or("classes", classes, "out");
  return layers::dense(out, options.boolean("bias", true));
}

engine::LayerPtr make_embedding(Options& options, std::int64_t classes) {
  const std::int64_t vocabulary = options.integer_or("classes", classes, "vocabulary"),
                     width = options.integer("width");
  return layers::embedding(vocabulary, width, options.number("deviation", 1));
}

engine::LayerPtr make_position_embedding(Options& options, std::int64_t) {
  const std::int64_t context = options.integer("context");
  return layers::position_embedding(context, options.number("deviation", 1));
}

engine::LayerPtr make_gelu(Options& options, std::int64_t) {
  const std::string approximate = options.text("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    options.refuse("approximate",
                   "'approximate' must be \"none\" or \"tanh\", not \"" + approximate + "\"");
  return layers::gelu(approximate == "tanh" ? engine::ops::GeluKind::kTanh
                                            : engine::ops::GeluKind::kExact);
}

engine::LayerPtr make_activation(Options& options, std::int64_t) {
  using enum engine::ops::ActivationKind;
  const auto& names = engine::ops::kActivationNames;
  const std::string function = options.text("function", "", {names.begin(), names.end() - 1});
  engine::ops::Activation f{*engine::ops::find_activation(function)};
  const double slope = options.number("slope", f.first), infinity = HUGE_VAL,
               low = options.number("low", -infinity), high = options.number("high", infinity),
               exponent = options.number("exponent", 1);
  f.first = f.kind == kClip ? low : f.kind == kPower ? exponent : slope;
  f.second = f.kind == kClip ? high : 0;
  return layers::activation(f);
}

layers::AttentionOptions attention_options(Options& options) {
  layers::AttentionOptions o;
  o.heads = options.integer("heads");
  o.kv_heads = options.integer("kv_heads", o.kv_heads);
  o.head_size = options.integer("head_size", o.head_size);
  o.dropout = options.number("dropout", o.dropout);
  return o;
}

engine::LayerPtr make_matmul(Options& options, std::int64_t) {
  layers::MatmulOptions o;
  o.transpose_second = options.boolean("transpose_second", o.transpose_second);
  o.scale = options.number("scale", o.scale);
  return layers::matmul(o);
}

engine::LayerPtr make_rotary(Options& options, std::int64_t) {
  layers::RotaryOptions o;
  o.heads = options.integer("heads");
  o.kv_heads = options.integer("kv_heads", o.kv_heads);
  engine::ops::RotaryFrequencies& f = o.frequencies;
  f.theta = options.number("theta", f.theta);
  f.factor = options.number("factor", f.factor);
  f.low_factor = options.number("low_factor", f.low_factor);
  f.high_factor = options.number("high_factor", f.high_factor);
  f.original_context = options.number("original_context", f.original_context);
  return layers::rotary(o);
}

engine::LayerPtr make_head_rms_norm(Options& options, std::int64_t) {
  layers::HeadNormOptions o;
  o.heads = options.integer("heads");
  o.kv_heads = options.integer("kv_heads", o.kv_heads);
  o.eps = options.number("eps", o.eps);
  return layers::head_rms_norm(o);
}

// An integer for both, or [height, width].
layers::HeightWidth height_width(Options& options, const std::string& key,
                                 const layers::HeightWidth& otherwise) {
  const auto values =
      options.one_or_list<std::int64_t>(key, otherwise.height, "integer or [height, width]", {2});
  return {values.front(), values.back()};
}

layers::Sides sides(Options& options, const std::string& key) {
  const auto v = options.one_or_list<std::int64_t>(
      key, 0, "integer, [height, width] or [top, left, bottom, right]", {2, 4});
  if (v.size() == 4) return {v[0], v[1], v[2], v[3]};
  return {v.front(), v.back()};
}

engine::LayerPtr make_conv2d(Options& options, std::int64_t classes) {
  layers::Conv2dOptions o;
  o.out_channels = options.integer_or("classes", classes, "out_channels");
  o.kernel = height_width(options, "kernel", o.kernel);
  o.stride = height_width(options, "stride", o.stride);
  o.padding = sides(options, "padding");
  o.bias = options.boolean("bias", o.bias);
  o.groups = options.integer("groups", o.groups);
  o.dilation = height_width(options, "dilation", o.dilation);
  return layers::conv2d(o);
}

engine::LayerPtr make_conv_transpose(Options& options, std::int64_t classes) {
  layers::ConvTransposeOptions o;
  o.out_channels = options.integer_or("classes", classes, "out_channels");
  o.kernel = height_width(options, "kernel", o.kernel);
  o.stride = height_width(options, "stride", o.stride);
  o.padding = sides(options, "padding");
  o.output_padding = height_width(options, "output_padding", o.output_padding);
  o.bias = options.boolean("bias", o.bias);
  o.groups = options.integer("groups", o.groups);
  o.dilation = height_width(options, "dilation", o.dilation);
  return layers::conv_transpose(o);
}

engine::LayerPtr make_convolve(Options& options, std::int64_t) {
  layers::ConvolveOptions o;
  o.stride = height_width(options, "stride", o.stride);
  o.padding = sides(options, "padding");
  o.groups = options.integer("groups", o.groups);
  o.dilation = height_width(options, "dilation", o.dilation);
  return layers::convolve(o);
}

engine::LayerPtr make_resize(Options& options, std::int64_t) {
  layers::ResizeOptions o;
  o.linear = options.text("mode", "", {"nearest", "bilinear"}) == "bilinear";
  const auto factors = options.one_or_list<double>("factor", 2, "number or [height, width]", {2});
  o.factor_height = factors.front();
  o.factor_width = factors.back();
  o.size = height_width(options, "size", o.size);
  return layers::resize(o);
}

engine::LayerPtr make_pad(Options& options, std::int64_t) {
  const layers::Sides padding = sides(options, "padding");
  return layers::pad(padding, options.number("value", 0));
}

engine::LayerPtr make_batch_norm2d(Options& options, std::int64_t) {
  layers::BatchNormOptions o;
  o.eps = options.number("eps", o.eps);
  o.momentum = options.number("momentum", o.momentum);
  o.affine = options.boolean("affine", o.affine);
  return layers::batch_norm2d(o);
}

engine::LayerPtr make_sync_batch_norm2d(Options& options, std::int64_t classes) {
  return make_batch_norm2d(options, classes)->in_form(engine::LayerForm::kSynchronized);
}

engine::LayerPtr make_group_norm(Options& options, std::int64_t) {
  layers::GroupNormOptions o;
  o.groups = options.integer("groups");
  o.eps = options.number("eps", o.eps);
  o.affine = options.boolean("affine", o.affine);
  return layers::group_norm(o);
}

layers::PoolOptions pool_options(Options& options) {
  layers::PoolOptions o;
  o.window = options.integer("window", o.window);
  o.stride = options.integer("stride", o.stride);
  o.padding = options.integer("padding", o.padding);
  o.ceil_mode = options.boolean("ceil_mode", o.ceil_mode);
  return o;
}

engine::LayerPtr make_slice(Options& options, std::int64_t) {
  layers::SliceOptions o;
  o.axis = options.integer("axis", o.axis);
  o.first = options.integer("first", o.first);
  o.count = options.integer("count", o.count);
  o.step = options.integer("step", o.step);
  return layers::slice(o);
}

engine::LayerPtr make_parameter(Options& options, std::int64_t classes) {
  layers::ParameterOptions o;
  o.shape = options.integers("shape", "classes", classes);
  o.deviation = options.number("deviation", o.deviation);
  o.initial = options.number("initial", o.initial);
  return layers::parameter(o);
}

engine::LayerPtr make_reduce(Options& options, std::int64_t) {
  const std::string function = options.text("function", "", {"mean", "sum", "max"});
  using enum layers::ReduceFunction;
  layers::ReduceOptions o;
  o.function = function == "mean" ? kMean : function == "sum" ? kSum : kMax;
  o.axes = options.integers("axes");
  o.keep = options.boolean("keep", o.keep);
  return layers::reduce(o);
}

engine::LayerPtr make_compare(Options& options, std::int64_t) {
  const std::vector<std::string> names{"greater", "greater_equal", "less", "less_equal", "equal"};
  const std::string function = options.text("function", "", names);
  const auto place = std::ranges::find(names, function) - names.begin();
  return layers::compare(static_cast<layers::CompareFunction>(place));
}

engine::LayerPtr make_gather(Options& options, std::int64_t) {
  const std::int64_t axis = options.integer("axis", 0);
  return layers::gather(axis, options.integers("indices"));
}

struct Kind {
  const char* name;
  engine::LayerPtr (*make)(Options& options, std::int64_t classes);
  // For docs/toml.md: input and output, further rules, parameters and buffers.
  const char *shapes, *rules, *arrays;
};

constexpr const char* kSame = "any → the same";
constexpr const char* kRowsSame = "[..., width] → the same";
constexpr const char* kImageSame = "[h, w, c] → the same";
constexpr const char* kProjectionHeads = "[t, (heads + 2 kv_heads) * size] → [t, heads * size]";
constexpr const char* kProjectionSame = "[t, (heads + 2 kv_heads) * size] → the same";
constexpr const char* kExpanded = "two → their shape, expanded as NumPy does";
constexpr const char* kTwoInputs =
    "needs `inputs`, two of them; their extents, from the last on, are equal or 1";
constexpr const char* kWindowed =
    "[h, w, c] → [h', w', c], h' = floor((h + 2 padding - window) / stride) + 1; "
    "with `ceil_mode` "
    "rounded up, without windows that would begin beyond the input and its first padding";
constexpr const char* kWindowRules =
    "stride 0: the window; window 1 to 15; padding at most half the window; h and w + 2 padding at "
    "least the window";
constexpr const char* kNormArrays = "weight [c], bias [c], both if `affine`";
constexpr const char* kBatchNormArrays =
    "weight [c], bias [c], both if `affine`; running_mean [c], running_var [c], "
    "num_batches_tracked []";
constexpr const char* kBatchNormRules = "eps above 0; momentum 0 to 1";

constexpr Kind kKinds[] = {
    {"dense", make_dense, "[..., in] → [..., out]", "",
     "weight [out, in]; bias [out] where it has one"},
    {"conv2d", make_conv2d,
     "[h, w, c] → [h', w', out_channels], h' = floor((h + top + bottom - dilation (kernel - 1) - "
     "1) "
     "/ stride) + 1",
     "the padded input at least as large as a window; groups divide c and out_channels; square "
     "kernels with equal strides, the same padding at all sides and no dilation are fastest",
     "weight [out_channels, c / groups, kernel height, kernel width]; bias [out_channels] where it "
     "has one"},
    {"conv_transpose", make_conv_transpose,
     "[h, w, c] → [h', w', out_channels], h' = (h - 1) stride + dilation (kernel - 1) + 1 - top "
     "- bottom + output_padding",
     "output_padding below stride or dilation; groups divide c and out_channels; PyTorch's "
     "ConvTranspose2d",
     "weight [c, out_channels / groups, kernel height, kernel width]; bias [out_channels] where it "
     "has one"},
    {"convolve", make_convolve,
     "[h, w, c], [outputs, kernel height, kernel width, c / groups] → [h', w', outputs]",
     "`conv2d` without a bias, by the second input, one for each sample; groups divide c and the "
     "outputs",
     ""},
    {"resize", make_resize, "[h, w, c] → [h', w', c], h' = floor(factor h), or size",
     "factor above 0; size 0: by the factor; PyTorch's interpolate with align_corners=False", ""},
    {"pad", make_pad, "[h, w, c] → [top + h + bottom, left + w + right, c]",
     "padding from 0; `value` around the image, also inf", ""},
    {"batch_norm2d", make_batch_norm2d, kImageSame, kBatchNormRules, kBatchNormArrays},
    {"sync_batch_norm2d", make_sync_batch_norm2d, kImageSame,
     "statistics over the samples of all replicas; eps above 0; momentum 0 to 1", kBatchNormArrays},
    {"group_norm", make_group_norm, kImageSame, "groups divide c; eps above 0", kNormArrays},
    {"relu", [](Options&, std::int64_t) { return layers::relu(); }, kSame, "", ""},
    {"max_pool2d", [](Options& o, std::int64_t) { return layers::max_pool2d(pool_options(o)); },
     kWindowed, kWindowRules, ""},
    {"average_pool2d",
     [](Options& o, std::int64_t) { return layers::average_pool2d(pool_options(o)); }, kWindowed,
     kWindowRules, ""},
    {"pad_channels",
     [](Options& o, std::int64_t) {
       const std::int64_t before = o.integer("before", 0), after = o.integer("after", 0);
       return layers::pad_channels(before, after);
     },
     "[h, w, c] → [h, w, before + c + after]", "the new channels are 0", ""},
    {"shuffle_channels",
     [](Options& o, std::int64_t) { return layers::shuffle_channels(o.integer("groups", 1)); },
     "[h, w, c] → the same; [c] → the same",
     "groups divide c; interleaves the channels of the groups, as ShuffleNet", ""},
    {"global_average_pool", [](Options&, std::int64_t) { return layers::global_average_pool(); },
     "[h, w, c] → [c]", "", ""},
    {"flatten", [](Options&, std::int64_t) { return layers::flatten(); },
     "[h, w, c] "
     "→ [c * h * w]",
     "channel by channel, as PyTorch has them", ""},
    {"add", [](Options&, std::int64_t) { return layers::add(); }, kExpanded, kTwoInputs, ""},
    {"subtract", [](Options&, std::int64_t) { return layers::subtract(); }, kExpanded, kTwoInputs,
     ""},
    {"dropout", [](Options& o, std::int64_t) { return layers::dropout(o.number("rate", 0.5)); },
     kSame, "rate from 0, below 1; acts in training alone", ""},
    {"embedding", make_embedding, "token ids [t] → [t, width]",
     "the first layer of a model of text; deviation of the initial values",
     "weight [vocabulary, width]"},
    {"position_embedding", make_position_embedding, "[t, width] → the same",
     "t at most `context`; deviation of the initial values", "weight [context, width]"},
    {"layer_norm",
     [](Options& o, std::int64_t) {
       const double eps = o.number("eps", 1e-5);
       return layers::layer_norm(eps, o.boolean("affine", true));
     },
     kRowsSame, "eps above 0", "weight [width], bias [width], both if `affine`"},
    {"rms_norm", [](Options& o, std::int64_t) { return layers::rms_norm(o.number("eps", 1e-6)); },
     kRowsSame, "eps above 0; divides by the root mean square", "weight [width]"},
    {"gelu", make_gelu, kSame, "approximate \"none\" or \"tanh\"", ""},
    {"causal_self_attention",
     [](Options& o, std::int64_t) { return layers::causal_self_attention(attention_options(o)); },
     kProjectionHeads,
     "reads queries, keys and values side by side; heads / kv_heads heads of queries share one of "
     "keys and values; kv_heads 0: as many as heads; head_size above 0: the size that is required; "
     "dropout of the probabilities from 0, below 1",
     ""},
    {"self_attention",
     [](Options& o, std::int64_t) { return layers::self_attention(attention_options(o)); },
     kProjectionHeads, "as `causal_self_attention`, but every position attends to all", ""},
    {"matmul", make_matmul,
     "[..., m, k], [..., k, n] (with `transpose_second` [..., n, k]) → [..., m, n]",
     "needs `inputs`, two of them; equal leading dimensions; `scale` multiplies the product", ""},
    {"softmax", [](Options&, std::int64_t) { return layers::softmax(); }, kRowsSame,
     "over the last dimension", ""},
    {"rotary", make_rotary, kProjectionSame,
     "turns heads of queries and keys by their position, as Llama (rotate_half); an even size, at "
     "most 256; factor 1: plain frequencies, else Llama 3's scaling; low_factor below high_factor, "
     "all above 0",
     ""},
    {"head_rms_norm", make_head_rms_norm, kProjectionSame,
     "`rms_norm` of each head of queries and of keys; eps above 0",
     "q_norm.weight [size], k_norm.weight [size]"},
    {"concat", [](Options& o, std::int64_t) { return layers::concat(o.integer("axis", -1)); },
     "[..., a, ...], [..., b, ...], ... → [..., a + b + ..., ...]",
     "needs `inputs`, two or more that differ only along `axis`", ""},
    {"slice", make_slice, "[..., a, ...] → [..., count, ...]",
     "the entries first, first + step, ... of `axis`", ""},
    {"reshape", [](Options& o, std::int64_t) { return layers::reshape(o.integers("shape")); },
     "any → [shape]", "the same numbers in their order; one extent may be -1", ""},
    {"permute", [](Options& o, std::int64_t) { return layers::permute(o.integers("order")); },
     "any → its dimensions in another order", "each dimension once, as PyTorch's", ""},
    {"activation", make_activation, kSame,
     "PyTorch's function of that name; slope of leaky_relu, from 0; low and high of clip; exponent "
     "of power",
     ""},
    {"scale_shift",
     [](Options& o, std::int64_t) {
       const double scale = o.number("scale", 1);
       return layers::scale_shift(scale, o.number("shift", 0));
     },
     kSame, "scale * x + shift", ""},
    {"multiply", [](Options&, std::int64_t) { return layers::multiply(); }, kExpanded, kTwoInputs,
     ""},
    {"divide", [](Options&, std::int64_t) { return layers::divide(); }, kExpanded, kTwoInputs, ""},
    {"compare", make_compare, kExpanded,
     "1 if the comparison of the first with the second holds, else 0; needs `inputs`, as `add`; "
     "its gradient is 0",
     ""},
    {"where", [](Options&, std::int64_t) { return layers::where(); },
     "three → their shape, expanded as NumPy does",
     "needs `inputs`: the second where the first is not 0, else the third; the gradient of the "
     "first is 0",
     ""},
    {"reduce", make_reduce, "any → without `axes`, or with extents of 1 there",
     "keep: the axes remain; the gradient of a maximum goes to the first one", ""},
    {"gather", make_gather, "[..., a, ...] → [..., number of indices, ...]",
     "the entries of `axis` with these indices, from 0; one may be repeated", ""},
    {"parameter", make_parameter, "none → [shape]",
     "reads no input, the same for each sample; `initial` if deviation is 0", "weight [shape]"},
    {"constant",
     [](Options& o, std::int64_t) {
       const std::vector<std::int64_t> shape = o.integers("shape");
       return layers::constant(shape, o.number("initial", 0));
     },
     "none → [shape]", "the same for each sample; not trained", "; value [shape]"},
};

std::string options_text(const std::vector<OptionDescription>& options) {
  std::string text;
  for (const OptionDescription& option : options)
    text += (text.empty() ? "`" : ", `") + option.key + "` " + option.type +
            (option.otherwise.empty() ? " (required)" : " = " + option.otherwise);
  return text;
}

}  // namespace

std::vector<LayerKind> layer_kinds() {
  const std::string no_file;
  const toml::table nothing;
  std::vector<LayerKind> all;
  for (const Kind& kind : kKinds) {
    std::vector<OptionDescription> described;
    Options options(no_file, nothing);
    options.describe_into(described);
    static_cast<void>(kind.make(options, 1));
    all.push_back({kind.name, std::move(described)});
  }
  return all;
}

std::string layer_kinds_table() {
  std::string text =
      "| kind | options | input → output | rules | parameters; buffers "
      "|\n|---|---|---|---|---|\n";
  const std::vector<LayerKind> kinds = layer_kinds();
  for (std::size_t i = 0; i < kinds.size(); ++i)
    text += "| `" + kinds[i].name + "` | " + options_text(kinds[i].options) + " | " +
            kKinds[i].shapes + " | " + kKinds[i].rules + " | " + kKinds[i].arrays + " |\n";
  return text;
}

engine::LayerPtr make_layer(const std::string& kind, Options& options, std::int64_t classes) {
  std::vector<std::string> names;
  for (const Kind& known : kKinds) {
    if (kind == known.name) return known.make(options, classes);
    names.emplace_back(known.name);
  }
  options.refuse("kind", "unknown kind '" + kind + "'" + base::did_you_mean(kind, names) +
                             " (known: " + base::join_text(names) + ")");
}

}  // namespace models
