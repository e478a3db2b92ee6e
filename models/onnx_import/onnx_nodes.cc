// Collects all that cannot be translated, for one message.
#include "models/onnx_import/onnx_nodes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>

#include "engine/core/error.h"
#include "io/base/text/escape_text.h"
#include "models/onnx_import/onnx_folding.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

namespace models {
namespace {

constexpr std::size_t kMaxShownProblems = 20;
constexpr std::int64_t kOldOpset = 18;  // later operators are exported as others

// The node of a norm without parameters that reads those of another module, which are ones and
// zeros: with constants in their place.
std::optional<io::ReadNode> with_neutral_inputs(OnnxTranslation& all, const io::ReadNode& node) {
  std::optional<io::ReadNode> changed;
  OnnxOperator op(all, node);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const OnnxKnown* known = all.values.find(node.inputs[i]);
    const auto* constant = known == nullptr ? nullptr : std::get_if<OnnxConstant>(known);
    if (constant == nullptr || constant->origin != OnnxOrigin::kParameter ||
        constant->tensor->count() > kMaxOnnxComputed ||
        (constant->tensor->type != io::DType::kF32 && constant->tensor->type != io::DType::kF64) ||
        !is_neutral_input(node, i))
      continue;
    const double number = node.type == "Mul" || (node.type != "Add" && i == 1) ? 1 : 0;
    OnnxTensor tensor = op.tensor(i);
    count_computed(op, count_of(tensor));
    if (!std::ranges::all_of(tensor.reals, [&](double value) { return value == number; })) continue;
    const std::string name = node.inputs[i] + "\nneutral";
    all.values.set(name, std::move(tensor));
    if (!changed) changed = node;
    changed->inputs[i] = name;
  }
  return changed;
}

class NodePass {
 public:
  explicit NodePass(OnnxTranslation& all) : all_(all) {}

  void run() {
    for (const io::ReadNode& node : all_.graph.nodes) {
      if (place_ >= all_.pixel_nodes) translate(node);
      all_.values.count_reads(node);
      ++place_;
      if (all_.layers.all().size() > kMaxOnnxLayers)
        throw engine::ModelError(all_.file.name() + ": more than " +
                                 std::to_string(kMaxOnnxLayers) + " layers");
    }
    if (count_ == 0) return;
    std::string text = all_.file.name() + ": " + std::to_string(count_) + " of its " +
                       std::to_string(all_.graph.nodes.size()) +
                       " nodes cannot be trained: " + problems_;
    if (count_ > kMaxShownProblems)
      text += "and " + std::to_string(count_ - kMaxShownProblems) + " more; ";
    text.resize(text.size() - 2);
    if (has_unknown_) text += "; docs/onnx-models.md lists the known operators";
    if (has_unknown_ && all_.graph.opset > kOldOpset)
      text += ": opset_version=" + std::to_string(kOldOpset) + " may export others";
    throw engine::ModelError(text);
  }

 private:
  void report(const io::ReadNode& node, const std::string& problem) {
    if (++count_ > kMaxShownProblems) return;
    const std::string name =
        node.name.empty() ? std::to_string(place_) : "'" + base::escape_text(node.name) + "'";
    problems_ += "node " + name + " (" + base::escape_text(node.type) + "): " + problem + "; ";
  }

  // A further output, as most operators have them only in training.
  bool is_missing(const std::string& output) const {
    return !output.empty() && all_.values.readers(output) > 0 &&
           std::holds_alternative<OnnxUntranslated>(*all_.values.find(output));
  }

  void translate(const io::ReadNode& node) {
    for (const std::string& value : node.outputs)
      if (!value.empty()) all_.values.set(value, OnnxUntranslated{});
    if (!node.domain.empty())
      return report(node,
                    "an operator of '" + base::escape_text(node.domain) + "', expected ONNX's own");
    const OnnxBuild build = find_onnx_operator(node.type);
    if (node.outputs.empty()) return report(node, "it has no output");
    try {
      const std::optional<io::ReadNode> changed = with_neutral_inputs(all_, node);
      OnnxOperator op(all_, changed ? *changed : node);
      if (fold_node(op)) return;
      if (build == nullptr) {
        has_unknown_ = true;
        return report(node, "no layer does this");
      }
      build(op);
      for (std::size_t i = 1; i < node.outputs.size(); ++i)
        if (is_missing(node.outputs[i]))
          report(node, "its output " + std::to_string(i) + " is read, expected only output 0");
    } catch (const OnnxUnsupported& problem) {
      report(node, problem.what());
    } catch (const OnnxDependent&) {
      return;  // the node that it depends on has been reported
    }
  }

  OnnxTranslation& all_;
  std::string problems_;
  std::size_t count_ = 0;
  bool has_unknown_ = false;  // an operator that is not in the table
  std::size_t place_ = 0;     // of the node in the file, from 0
};

bool is_plain_map(const OnnxActivation& output) {
  return output.layout == OnnxActivation::Layout::kPlain && output.shape.size() == 3;
}

// [batch, classes, height, width] or [batch, classes, length], as the loss reads it.
OnnxActivation with_classes_last(OnnxOperator& op, const OnnxActivation& output) {
  if (output.shape.size() == 4) return as_image(op, output);
  if (!is_plain_map(output) || output.plain.dims[0] != std::vector<int>{kOnnxBatchAxis})
    return output;
  const OnnxActivation value = materialized(op, output);
  const auto& dims = value.plain.dims;
  return ordered(op, value, {dims[2], dims[1]});
}

// Networks that read token ids have the scores of each token after its position: [batch, length,
// classes].
OnnxActivation with_classes_before_positions(OnnxActivation output, std::int64_t tokens) {
  if (tokens == 0 || !is_plain_map(output) || output.shape[1] != tokens) return output;
  std::swap(output.shape[1], output.shape[2]);
  std::swap(output.plain.dims[1], output.plain.dims[2]);
  return output;
}

// The network's output with one number for each class, for a sample or for each of its positions.
OnnxActivation as_scores(OnnxTranslation& all, OnnxActivation output) {
  if (output.shape.size() == 1) {  // a number for each sample
    output = as_plain(output);
    output.plain.dims.emplace_back();
    output = as_special(std::move(output));
  }
  if (output.layout != OnnxActivation::Layout::kPlain) return output;
  OnnxOperator last(all, all.graph.nodes.back());
  if (output.shape.size() == 2) output = flattened(last, output);
  if (output.layout == OnnxActivation::Layout::kPlain)
    output = with_classes_last(last, with_classes_before_positions(output, all.tokens));
  return output;
}

}  // namespace

OnnxActivation translate_nodes(OnnxTranslation& all) {
  share_orders(all);
  NodePass(all).run();
  expect_shared_weights(all);
  restore_zero_biases(all.layers);
  const std::string& name = all.graph.outputs[0].name;
  const OnnxKnown* known = all.values.find(name);
  const auto* found = known == nullptr ? nullptr : std::get_if<OnnxActivation>(known);
  const std::string who = all.file.name() + ": its output '" + base::escape_text(name) + "' ";
  if (found == nullptr || found->layer < 0)
    throw engine::ModelError(who + "is not computed by a layer");
  OnnxActivation output = *found;
  if (output.shape.empty() || output.shape[0] != kOnnxBatch)
    throw engine::ModelError(who + "has the shape " + onnx_shape_text(output.shape) +
                             ", expected samples in its first dimension, [batch, ...]");
  try {
    output = as_scores(all, std::move(output));
  } catch (const OnnxUnsupported& error) {  // e.g. an unknown number of elements
    throw engine::ModelError(who + "is not supported: " + error.what());
  }
  if (output.layout == OnnxActivation::Layout::kVector ||
      output.layout == OnnxActivation::Layout::kImage || is_plain_map(output))
    return output;
  throw engine::ModelError(who + "has the shape " + onnx_shape_text(output.shape) +
                           ", expected [batch, classes], [batch, classes, height, width] or "
                           "[batch, classes, length] (of token ids also [batch, length, "
                           "classes])");
}

}  // namespace models
