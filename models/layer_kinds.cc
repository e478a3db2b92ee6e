// One function a kind of layer, from its TOML table.
//
// Options, with their defaults; those without one are required:
//   dense                  out (or the word "classes"), bias = true
//   conv2d                 out_channels, kernel = 3, stride = 1, padding = 0, bias = true
//   batch_norm2d           eps = 1e-5, momentum = 0.1
//   sync_batch_norm2d      the same, with statistics over the samples of all replicas
//   group_norm             groups, eps = 1e-5
//   max_pool2d, average_pool2d    window = 2, stride = the window, padding = 0, ceil_mode = false
//   pad_channels           before = 0, after = 0
//   dropout                rate = 0.5
//   embedding              vocabulary (or the word "classes"), width, deviation = 1 of the initial
//                          values; reads token ids
//   position_embedding     context, deviation = 1
//   layer_norm             eps = 1e-5
//   gelu                   approximate = "none" (or "tanh")
//   causal_self_attention  heads, dropout = 0; reads queries, keys and values side by side
//   relu, global_average_pool, flatten, add    none
#include "models/layer_kinds.h"

#include <utility>

#include "engine/layers/layers.h"
#include "io/base/text_parts.h"

namespace models {
namespace {

namespace layers = engine::layers;

// An integer, or the word "classes".
std::int64_t integer_or_classes(Options& options, const std::string& key, std::int64_t classes) {
  if (!options.is_text(key)) return options.integer(key);
  if (options.text(key) != "classes")
    options.refuse(key, "'" + key + "' must be an integer or \"classes\"");
  return classes;
}

engine::LayerPtr make_dense(Options& options, std::int64_t classes) {
  const std::int64_t out = integer_or_classes(options, "out", classes);
  return layers::dense(out, options.boolean("bias", true));
}

engine::LayerPtr make_embedding(Options& options, std::int64_t classes) {
  const std::int64_t vocabulary = integer_or_classes(options, "vocabulary", classes),
                     width = options.integer("width");
  return layers::embedding(vocabulary, width, options.number("deviation", 1));
}

engine::LayerPtr make_position_embedding(Options& options, std::int64_t) {
  const std::int64_t context = options.integer("context");
  return layers::position_embedding(context, options.number("deviation", 1));
}

engine::LayerPtr make_gelu(Options& options, std::int64_t) {
  const std::string approximate = options.text("approximate").value_or("none");
  if (approximate != "none" && approximate != "tanh")
    options.refuse("approximate",
                   "'approximate' must be \"none\" or \"tanh\", not \"" + approximate + "\"");
  return layers::gelu(approximate == "tanh" ? engine::ops::GeluKind::kTanh
                                            : engine::ops::GeluKind::kExact);
}

engine::LayerPtr make_attention(Options& options, std::int64_t) {
  const std::int64_t heads = options.integer("heads");
  return layers::causal_self_attention(heads, options.number("dropout", 0));
}

engine::LayerPtr make_conv2d(Options& options, std::int64_t) {
  layers::Conv2dOptions o;
  o.out_channels = options.integer("out_channels");
  o.kernel = options.integer("kernel", o.kernel);
  o.stride = options.integer("stride", o.stride);
  o.padding = options.integer("padding", o.padding);
  o.bias = options.boolean("bias", o.bias);
  return layers::conv2d(o);
}

engine::LayerPtr make_batch_norm2d(Options& options, std::int64_t) {
  layers::BatchNormOptions o;
  o.eps = options.number("eps", o.eps);
  o.momentum = options.number("momentum", o.momentum);
  return layers::batch_norm2d(o);
}

engine::LayerPtr make_sync_batch_norm2d(Options& options, std::int64_t classes) {
  return make_batch_norm2d(options, classes)->synchronized();
}

engine::LayerPtr make_group_norm(Options& options, std::int64_t) {
  layers::GroupNormOptions o;
  o.groups = options.integer("groups");
  o.eps = options.number("eps", o.eps);
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

struct Kind {
  const char* name;
  engine::LayerPtr (*make)(Options& options, std::int64_t classes);
};

constexpr Kind kKinds[] = {
    {"dense", make_dense},
    {"conv2d", make_conv2d},
    {"batch_norm2d", make_batch_norm2d},
    {"sync_batch_norm2d", make_sync_batch_norm2d},
    {"group_norm", make_group_norm},
    {"relu", [](Options&, std::int64_t) { return layers::relu(); }},
    {"max_pool2d", [](Options& o, std::int64_t) { return layers::max_pool2d(pool_options(o)); }},
    {"average_pool2d",
     [](Options& o, std::int64_t) { return layers::average_pool2d(pool_options(o)); }},
    {"pad_channels",
     [](Options& o, std::int64_t) {
       return layers::pad_channels(o.integer("before", 0), o.integer("after", 0));
     }},
    {"global_average_pool", [](Options&, std::int64_t) { return layers::global_average_pool(); }},
    {"flatten", [](Options&, std::int64_t) { return layers::flatten(); }},
    {"add", [](Options&, std::int64_t) { return layers::add(); }},
    {"dropout", [](Options& o, std::int64_t) { return layers::dropout(o.number("rate", 0.5)); }},
    {"embedding", make_embedding},
    {"position_embedding", make_position_embedding},
    {"layer_norm",
     [](Options& o, std::int64_t) { return layers::layer_norm(o.number("eps", 1e-5)); }},
    {"gelu", make_gelu},
    {"causal_self_attention", make_attention},
};

}  // namespace

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
