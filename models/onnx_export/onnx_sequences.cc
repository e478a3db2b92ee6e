// Implements one function per kind of layer.
#include "models/onnx_export/onnx_layers.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "engine/layers/layers.h"

namespace models {
namespace {

using Ints = std::vector<std::int64_t>;

// Divides by the root mean square along an axis. Operator set 23 is the first with
// RMSNormalization.
std::string divide_by_rms(OnnxLayer& layer, const std::string& x, std::int64_t axis) {
  OnnxBuilder& out = layer.out;
  const std::string mean = out.add("ReduceMean", {out.add("Mul", {x, x})}, {{"axes", Ints{axis}}});
  const std::string eps = out.scalar(static_cast<float>(layer.option("eps")));
  return out.add("Div", {x, out.add("Sqrt", {out.add("Add", {mean, eps})})});
}

// The heads of a projection of queries, keys and values side by side.
struct Heads {
  std::int64_t queries, keys, size;  // keys: and as many of values

  explicit Heads(const OnnxLayer& layer)
      : queries(layer.whole("heads")),
        keys(layer.whole("kv_heads") == 0 ? queries : layer.whole("kv_heads")),
        size(layer.input_shape()[1] / (queries + 2 * keys)) {}
};

// Splits the last dimension of the input into parts of these numbers of heads.
std::vector<std::string> split_heads(OnnxLayer& layer, const Ints& counts, std::int64_t size) {
  Ints widths;
  for (const std::int64_t count : counts) widths.push_back(count * size);
  return layer.out.add_split("Split", {layer.inputs[0], layer.out.integers(widths)},
                             {{"axis", std::int64_t{2}}}, static_cast<int>(counts.size()));
}

// Returns the number of token positions at run time, as a vector of one number.
std::string positions(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  return out.shared("positions", [&] {
    return out.add("Shape", {layer.tokens}, {{"start", std::int64_t{1}}, {"end", std::int64_t{2}}});
  });
}

// Returns [positions, positions]: true if a position (row) may attend to another (column).
std::string causal_mask(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const std::string all = positions(layer);
  return out.shared("causal", [&] {
    const std::string each = out.add(
        "Range", {out.integer(0), out.add("Squeeze", {all, out.integers({0})}), out.integer(1)});
    return out.add("LessOrEqual", {each, out.add("Unsqueeze", {each, out.integers({1})})});
  });
}

// Returns [positions, 1, size / 2]: a cosine or sine of each pair's angle at each position.
std::string angles(OnnxLayer& layer, std::int64_t size, const char* name, double (*of)(double)) {
  OnnxBuilder& out = layer.out;
  const engine::ops::RotaryFrequencies f{layer.option("theta"), layer.option("factor"),
                                         layer.option("low_factor"), layer.option("high_factor"),
                                         layer.option("original_context")};
  const std::int64_t context = layer.input_shape()[0];
  std::string key = name;
  for (const double number : {static_cast<double>(size), f.theta, f.factor, f.low_factor,
                              f.high_factor, f.original_context})
    key += " " + std::to_string(number);
  const std::string all = positions(layer);
  return out.shared(key, [&] {
    const engine::ops::RotaryTurns turns = engine::ops::rotary_turns(f, size);
    std::vector<float> table;
    for (std::int64_t position = 0; position < context; ++position)
      for (std::int64_t i = 0; i < size / 2; ++i)
        table.push_back(static_cast<float>(
            of(2 * std::numbers::pi * turns.at[i] * static_cast<double>(position))));
    return out.add("Slice", {out.floats(table, {context, 1, size / 2}), out.integers({0}), all,
                             out.integers({0})});
  });
}

std::string add_rms_norm(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  std::string weight = out.weight(layer.parameter(0));
  if (layer.takes_images()) weight = out.add("Unsqueeze", {weight, out.integers({1, 2})});
  return out.add("Mul",
                 {divide_by_rms(layer, layer.inputs[0], layer.takes_images() ? 1 : -1), weight});
}

std::string add_head_rms_norm(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const Heads heads(layer);
  std::vector<std::string> parts =
      split_heads(layer, {heads.queries, heads.keys, heads.keys}, heads.size);
  for (const std::size_t part : {0, 1}) {
    const std::int64_t count = part == 0 ? heads.queries : heads.keys;
    const std::string by_head =
        out.add("Reshape", {parts[part], out.integers({0, 0, count, heads.size})});
    const std::string scaled =
        out.add("Mul", {divide_by_rms(layer, by_head, -1), out.weight(layer.parameter(part))});
    parts[part] = out.add("Reshape", {scaled, out.integers({0, 0, count * heads.size})});
  }
  return out.add("Concat", parts, {{"axis", std::int64_t{2}}});
}

std::string add_position_embedding(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const std::string rows = out.add("Slice", {out.weight(layer.parameter(0)), out.integers({0}),
                                             positions(layer), out.integers({0})});
  return out.add("Add", {layer.inputs[0], rows});
}

std::string add_rotary(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const Heads heads(layer);
  const std::int64_t turned = heads.queries + heads.keys, half = heads.size / 2;
  const std::string cosines = angles(layer, heads.size, "cosines", std::cos),
                    sines = angles(layer, heads.size, "sines", std::sin);
  const std::vector<std::string> parts = split_heads(layer, {turned, heads.keys}, heads.size);
  const std::string by_head =
      out.add("Reshape", {parts[0], out.integers({0, 0, turned, heads.size})});
  const std::vector<std::string> pair =
      out.add_split("Split", {by_head, out.integers({half, half})}, {{"axis", std::int64_t{3}}}, 2);
  const auto product = [&](std::size_t i, const std::string& factor) {
    return out.add("Mul", {pair[i], factor});
  };
  const std::string first = out.add("Sub", {product(0, cosines), product(1, sines)}),
                    second = out.add("Add", {product(1, cosines), product(0, sines)});
  const std::string joined = out.add("Concat", {first, second}, {{"axis", std::int64_t{3}}});
  const std::string flat = out.add("Reshape", {joined, out.integers({0, 0, turned * heads.size})});
  return out.add("Concat", {flat, parts[1]}, {{"axis", std::int64_t{2}}});
}

std::string add_attention(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const Heads heads(layer);
  const std::vector<std::string> parts =
      split_heads(layer, {heads.queries, heads.keys, heads.keys}, heads.size);
  const auto by_head = [&](std::size_t part, const Ints& order) {
    const std::int64_t count = part == 0 ? heads.queries : heads.keys;
    const std::string last =
        out.add("Reshape", {parts[part], out.integers({0, 0, count, heads.size})});
    const std::string first = out.add("Transpose", {last}, {{"perm", order}});
    if (count == heads.queries) return first;
    Ints source;  // the head of keys for each head of queries
    for (std::int64_t h = 0; h < heads.queries; ++h)
      source.push_back(h / (heads.queries / heads.keys));
    return out.add("Gather", {first, out.integers(source)}, {{"axis", std::int64_t{1}}});
  };
  const std::string q = by_head(0, {0, 2, 1, 3}), k = by_head(1, {0, 2, 3, 1}),
                    v = by_head(2, {0, 2, 1, 3});
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads.size)));
  std::string scores = out.add("Mul", {out.add("MatMul", {q, k}), out.scalar(scale)});
  if (layer.node().layer->kind() == "causal_self_attention")
    scores = out.add(
        "Where", {causal_mask(layer), scores, out.scalar(-std::numeric_limits<float>::infinity())});
  const std::string p = out.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  const std::string mixed =
      out.add("Transpose", {out.add("MatMul", {p, v})}, {{"perm", Ints{0, 2, 1, 3}}});
  return out.add("Reshape", {mixed, out.integers({0, 0, heads.queries * heads.size})});
}

constexpr OnnxKind kSequenceKinds[] = {
    {"rms_norm", add_rms_norm},
    {"head_rms_norm", add_head_rms_norm},
    {"position_embedding", add_position_embedding},
    {"rotary", add_rotary},
    {"causal_self_attention", add_attention},
    {"self_attention", add_attention},
};

}  // namespace

std::span<const OnnxKind> onnx_sequence_kinds() { return kSequenceKinds; }

}  // namespace models
