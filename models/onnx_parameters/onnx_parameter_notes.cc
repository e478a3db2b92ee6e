// Notices about parameters and norms: which are trained, and which are not.
#include "models/onnx_parameters/onnx_parameter_notes.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
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

std::string freeze_option(const std::vector<std::string>& names) {
  return names.size() > kMaxShown ? "--freeze NAME,..."
                                  : "--freeze '" + base::join_text(names, ",") + "'";
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
           !is_usual_parameter(stored))
    lists.assumed.push_back(name);
  else if (const auto sources = all.origins.parameters_in(stored);
           sources.size() > (layer.kind == "parameter" ? 0 : 1) && array.from.alias.empty())
    lists.computed.push_back(name + " (from " + base::join_text(sources) + ")");
}

// The parameters of the signature that are in a layer or in another list.
std::unordered_set<std::string> known_parameters(const OnnxTranslation& all) {
  std::unordered_set<std::string> known(all.read_as_numbers.begin(), all.read_as_numbers.end());
  const auto add = [&](const std::string& tensor) {
    known.insert(tensor);
    for (const std::string& source : all.origins.parameters_in(tensor)) known.insert(source);
  };
  for (const std::string& name : all.read_as_computed) add(name);
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
  note(lists.assumed, "the file does not tell parameters from buffers; also trained: ",
       "; " + freeze_option(lists.assumed) + " keeps those that PyTorch does not train");
  note(lists.buffers, "trained, although PyTorch does not train them: ",
       "; " + freeze_option(lists.buffers) + " keeps them");
  note(lists.computed, "trained as the exporter has computed them: ",
       "; export with optimize=False to train what they were computed from");
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
