// Notices about parameters and norms: which are trained, and which are not.
#include "models/onnx_parameters/onnx_parameter_notes.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "io/interchange/compare/compare_arrays.h"
#include "models/onnx_origins/onnx_calls.h"

namespace models {
namespace {

constexpr std::size_t kMaxShown = 8;  // names of a note

// The first names, and how many others there are.
std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> shown = names;
  shown.resize(std::min(names.size(), kMaxShown));
  const std::string rest =
      names.size() > kMaxShown ? " and " + std::to_string(names.size() - kMaxShown) + " more" : "";
  return base::join_text(shown) + rest;
}

// The name with * in place of the first number of a list of modules: "blocks.*.gamma.weight". One
// alone, as a pattern with several takes long to compare.
std::string pattern_of(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (end > begin && name.find_first_not_of("0123456789", begin) >= end)
      return name.substr(0, begin) + "*" + name.substr(end);
    begin = end + 1;
  }
  return name;
}

// The names by patterns of --freeze if they are many. `all`: other names, which no pattern fits.
std::vector<std::string> shortened(const std::vector<std::string>& names,
                                   const std::vector<std::string>& all) {
  if (names.size() <= kMaxShown) return names;
  std::unordered_map<std::string, std::size_t> counts;
  for (const std::string& name : names) ++counts[pattern_of(name)];
  std::vector<std::string> shorter;
  for (const std::string& name : names) {
    const std::string pattern = pattern_of(name);
    std::size_t& count = counts[pattern];
    if (count == 0) continue;  // the pattern is in the list
    if (count > 1) {
      const auto fitting = std::ranges::count_if(
          all, [&](const std::string& other) { return io::glob_matches(pattern, other); });
      count = fitting == static_cast<std::ptrdiff_t>(count) ? 0 : 1;
    }
    shorter.push_back(count == 0 ? pattern : name);
  }
  return shorter;
}

std::string freeze_option(const std::vector<std::string>& names) {
  return "--freeze '" + base::join_text(names, ",") + "'";
}

// Whether the name says that a module trains it: "weight_g", "in_proj_bias".
bool is_usual_parameter(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return last.find("weight") != std::string::npos || last.find("bias") != std::string::npos;
}

// Parameters of the layers by what the user should know of them.
struct OnnxParameterLists {
  std::vector<std::string> assumed;   // may be buffers: the file does not tell
  std::vector<std::string> buffers;   // are none in PyTorch
  std::vector<std::string> computed;  // by the exporter, from parameters
};

void add_to_lists(const OnnxTranslation& all, const OnnxListedLayer& layer,
                  const OnnxLayerArray& array, OnnxParameterLists& lists) {
  const std::string name = layer.name + "." + array.name;
  if (array.from.tensor == nullptr || layer.kind == "constant" ||
      io::section_of_name(name) == io::Section::kBuffer)
    return;
  const std::string& stored = array.from.tensor->name;
  if (!is_trained_weight(array.from))
    lists.buffers.push_back(name);
  else if (!all.origins.are_known() && !all.origins.is_anonymous(stored) &&
           !is_usual_parameter(initializer_name(array.from)))
    lists.assumed.push_back(name);
  else if (const auto sources = all.origins.parameters_in(stored);
           has_computed_numbers(array.from) ||
           (all.effects.separated.contains(stored) && array.from.alias.empty()) ||
           (sources.size() > (layer.kind == "parameter" ? 0 : 1) && array.from.alias.empty()))
    lists.computed.push_back(name +
                             (sources.empty() ? "" : " (from " + base::join_text(sources) + ")"));
}

// The parameters of the signature that are in a layer or in another list.
std::unordered_set<std::string> known_parameters(const OnnxTranslation& all) {
  std::unordered_set<std::string> known(all.read_as_numbers.begin(), all.read_as_numbers.end());
  const auto add = [&](const std::string& tensor) {
    known.insert(tensor);
    for (const std::string& source : all.origins.parameters_in(tensor)) known.insert(source);
  };
  for (const std::string& name : all.read_as_computed) add(name);
  for (const auto& [name, layer] : all.effects.zero_biases) known.insert(name);
  for (const io::ReadNode& node : all.graph.nodes)  // the norm's bias contains that of the layer
    if (const std::string ending = "weight"; has_folded_norm(node))
      for (const std::string& input : node.inputs)
        if (input.ends_with(ending))
          known.insert(input.substr(0, input.size() - ending.size()) + "bias");
  for (const OnnxListedLayer& layer : all.layers.all()) {
    if (!layer.zero_bias.empty()) known.insert(layer.zero_bias);
    for (const OnnxLayerArray& array : layer.arrays) {
      if (array.from.tensor == nullptr) continue;
      known.insert(initializer_name(array.from));
      add(array.from.tensor->name);
    }
  }
  return known;
}

// Parameters that no node reads. A module without any is unused, or shares those of another one.
std::vector<std::string> left_out_parameters(const OnnxTranslation& all) {
  const std::unordered_set<std::string> known = known_parameters(all);
  std::vector<std::string> left_out;
  for (const std::string& name : all.origins.parameters()) {
    const bool is_bias = name.ends_with("bias");
    const bool is_alone = is_bias && !known.contains(name.substr(0, name.size() - 4) + "weight");
    if (!known.contains(name) && !name.ends_with("weight") && !is_alone) left_out.push_back(name);
  }
  return left_out;
}

// Layers of weights that the file has once, and that have no name of their own there.
std::vector<std::string> separated_weights(const OnnxTranslation& all) {
  std::unordered_set<const io::StoredTensor*> seen;
  std::vector<std::string> separated;
  for (const OnnxListedLayer& layer : all.layers.all())
    for (const OnnxLayerArray& array : layer.arrays)
      if (!array.from.reader.empty() && !seen.insert(array.from.tensor).second)
        separated.push_back(layer.name + "." + array.name);
  return separated;
}

std::vector<std::string> array_names(const OnnxTranslation& all) {
  std::vector<std::string> names;
  for (const OnnxListedLayer& layer : all.layers.all())
    for (const OnnxLayerArray& array : layer.arrays) names.push_back(layer.name + "." + array.name);
  return names;
}

// The modules with other nodes than those of a Linear layer.
std::unordered_set<std::string> other_modules(const io::OnnxGraph& graph) {
  std::unordered_set<std::string> others;
  for (const io::ReadNode& node : graph.nodes)
    if (node.type != "MatMul" && node.type != "Add") others.insert(module_of(node));
  return others;
}

// Whether some numbers of the tensor are 0, and others are not, as those of a mask are.
bool has_zeros(const OnnxTranslation& all, const io::StoredTensor& tensor) {
  const io::NamedArray array = all.file.load(tensor);
  const std::size_t count = tensor.count(), bytes = count == 0 ? 0 : array.data.size() / count;
  std::size_t zeros = 0;
  for (std::size_t at = 0; bytes > 0 && at + bytes <= array.data.size(); at += bytes) {
    const auto sign = std::byte{0x80};  // of -0, in the last byte
    bool is_zero = (array.data[at + bytes - 1] & ~sign) == std::byte{};
    for (std::size_t i = 0; i + 1 < bytes; ++i)
      is_zero = is_zero && array.data[at + i] == std::byte{};
    zeros += is_zero ? 1 : 0;
  }
  constexpr std::size_t kShare = 100;
  return zeros * kShare >= count && zeros > 0 && zeros < count;
}

// Matrices without a name that may be transposed parameters or what the network computes from some:
// those of no Linear layer, as far as nodes and biases show, and those with zeros.
std::vector<std::string> unclear_weights(const OnnxTranslation& all,
                                         const std::vector<bool>& needed) {
  std::vector<std::string> unclear;
  if (all.origins.are_known() || !all.origins.is_torch()) return unclear;
  const std::unordered_set<std::string> others = other_modules(all.graph);
  std::unordered_set<std::string> elsewhere;  // tensors that a node of another module reads
  for (const io::ReadNode& node : all.graph.nodes)
    if (node.type == "MatMul" && others.contains(module_of(node)))
      elsewhere.insert(node.inputs.begin(), node.inputs.end());
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const OnnxListedLayer& layer = all.layers.all()[i];
    if (!needed[i] || layer.kind != "dense" || layer.arrays.empty()) continue;
    const OnnxConstant& weight = layer.arrays[0].from;
    if (weight.tensor == nullptr || !weight.tensor->name.starts_with("onnx::MatMul_")) continue;
    const bool has_named_bias = layer.arrays.size() > 1 && layer.arrays[1].from.tensor != nullptr &&
                                is_usual_parameter(initializer_name(layer.arrays[1].from));
    const bool is_elsewhere = !has_named_bias && elsewhere.contains(weight.tensor->name);
    if (is_elsewhere || has_zeros(all, *weight.tensor)) unclear.push_back(layer.name + ".weight");
  }
  return unclear;
}

// Norms of groups whose ones and zeros have no name.
std::vector<std::string> norms_without_numbers(const OnnxTranslation& all,
                                               const std::vector<bool>& needed) {
  std::vector<std::string> norms;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const OnnxListedLayer& layer = all.layers.all()[i];
    if (needed[i] && layer.arrays.empty() && layer.tied.empty() &&
        all.effects.unnamed_norms.contains(layer.name))
      norms.push_back(layer.name);
  }
  return norms;
}

}  // namespace

void note_parameters(const OnnxTranslation& all, const std::vector<bool>& needed,
                     std::vector<std::string>& notes) {
  OnnxParameterLists lists;
  for (std::size_t i = 0; i < needed.size(); ++i)
    for (const OnnxLayerArray& array : all.layers.all()[i].arrays)
      if (needed[i]) add_to_lists(all, all.layers.all()[i], array, lists);
  const auto note = [&](const std::vector<std::string>& names, const std::string& before,
                        const std::string& after) {
    if (!names.empty()) notes.push_back(before + listed(names) + after);
  };
  const auto note_all = [&](const std::vector<std::string>& names, const std::string& before,
                            const std::string& after) {
    const std::vector<std::string> shown = shortened(names, array_names(all));
    if (!names.empty())
      notes.push_back(before + base::join_text(shown) + "; " + freeze_option(shown) + after);
  };
  note_all(lists.assumed, "the file does not tell parameters from buffers; also trained: ",
           " keeps those that PyTorch does not train");
  note_all(lists.buffers, "trained, although PyTorch does not train them: ", " keeps them");
  note(lists.computed, "trained as the exporter has computed them: ",
       std::string("; export with ") +
           (all.origins.are_known() ? "optimize=False" : "do_constant_folding=False") +
           " to train what they were computed from");
  note(unclear_weights(all, needed),
       "trained as they are, as the file does not tell whether the network computes them from "
       "parameters: ",
       "; export with do_constant_folding=False if it does");
  note(norms_without_numbers(all, needed),
       "not trained, as the file does not tell whether they have a weight of 1 and a bias of 0: ",
       "; export with do_constant_folding=False if they do");
  note(separated_weights(all), "trained apart from equal ones, which the file has merged: ",
       "; export with do_constant_folding=False if they are shared");
  note(left_out_parameters(all), "not trained, as the file does not contain them: ",
       "; if the network uses them, export with optimize=False");
  note(all.read_as_numbers, "not trained, as they are read as numbers: ", "");
  note(all.read_as_computed, "not trained, as the exporter has computed them: ",
       "; export with do_constant_folding=False (dynamo=True: optimize=False) to train parameters "
       "in them");
}

// With dynamo=True, the optimizer folds norms in every mode, and names its rule at the node.
void note_folded_norms(const OnnxTranslation& all, std::vector<std::string>& notes) {
  const auto by_rule =
      static_cast<std::size_t>(std::ranges::count_if(all.graph.nodes, has_folded_norm));
  const std::size_t count = all.folded_norms + by_rule;
  if (count == 0) return;
  const bool is_dynamo = by_rule > 0 || all.origins.are_known();
  notes.push_back(std::to_string(count) +
                  " batch norms are folded into the layers before them and not trained; export "
                  "with " +
                  (is_dynamo ? "optimize=False, or with dynamo=False and " : "") +
                  "training=TrainingMode.TRAINING to keep them");
}

}  // namespace models
