// The layers whose outputs are the classes, which may be others for the data.
#include "models/onnx_parameters/onnx_heads.h"

#include <algorithm>
#include <string>
#include <vector>

namespace models {
namespace {

std::string* head_option(OnnxListedLayer& layer, const std::string& key) {
  const auto found =
      std::ranges::find(layer.options, key, [](const auto& pair) { return pair.first; });
  return found == layer.options.end() ? nullptr : &found->second;
}

// The last number of a list as TOML has it; "" for an empty list.
std::string last_number(const std::string& list) {
  const std::size_t begin = list.find_last_of("[ ") + 1;
  return list.substr(begin, list.size() - 1 - begin);
}

void replace_last_number(std::string& list, const std::string& by) {
  list.replace(list.size() - 1 - last_number(list).size(), last_number(list).size(), by);
}

// Follows the classes from the logits back to the layers that have a number for each of them.
class HeadSearch {
 public:
  HeadSearch(OnnxLayerList& layers, const OnnxActivation& output)
      : layers_(layers),
        classes_(std::to_string(output.shape[1])),
        has_classes_(layers.all().size()),
        passes_(layers.all().size()),
        open_{output.layer} {}

  // Returns whether all of these layers can have another number of classes.
  bool run(const std::vector<bool>& needed) {
    while (!open_.empty()) {
      const int at = open_.back();
      open_.pop_back();
      if (at < 0) return false;
      if (has_classes_[static_cast<std::size_t>(at)]) continue;
      has_classes_[static_cast<std::size_t>(at)] = true;
      if (!take(at)) return false;
    }
    return !heads_.empty() && !is_read_elsewhere(needed);
  }

  // Gives the layers the data's number of classes. Returns the names of those with parameters.
  std::vector<std::string> replace() {
    for (std::string* list : shapes_) replace_last_number(*list, "-1");
    std::ranges::sort(heads_);
    std::vector<std::string> names;
    for (const int at : heads_) {
      OnnxListedLayer& head = layers_.at(at);
      names.push_back(head.name);
      if (head.kind == "parameter")
        replace_last_number(*head_option(head, "shape"), "\"classes\"");
      else if (std::string* outputs = outputs_of(head))
        *outputs = "\"classes\"";
    }
    for (const auto& [at, initial] : initial_values_) {
      layers_.at(at).options.emplace_back("deviation", "0");
      layers_.at(at).options.emplace_back("initial", initial);
    }
    return names;
  }

 private:
  static std::string* outputs_of(OnnxListedLayer& layer) {
    std::string* outputs = head_option(layer, "out");
    return outputs != nullptr ? outputs : head_option(layer, "out_channels");
  }

  bool is_shared(const OnnxListedLayer& layer) const {
    return !layer.tied.empty() ||
           std::ranges::any_of(layers_.all(), [&](const OnnxListedLayer& other) {
             return other.tied == layer.name;
           });
  }

  // Whether PyTorch computes the weight of the layer, e.g. that of a cosine classifier.
  static bool is_computed(const OnnxListedLayer& layer) {
    return std::ranges::any_of(layer.arrays, [](const OnnxLayerArray& array) {
      return array.from.tensor != nullptr && has_computed_numbers(array.from);
    });
  }

  // Whether the last dimension of the output is that of the input, whatever its extent is.
  bool keeps_classes(OnnxListedLayer& layer) {
    constexpr const char* kKinds[] = {
        "relu",           "gelu",   "activation",          "dropout",     "flatten", "max_pool2d",
        "average_pool2d", "resize", "global_average_pool", "scale_shift", "softmax", "pad"};
    if (layer.keeps_last || std::ranges::find(kKinds, layer.kind) != std::end(kKinds)) return true;
    if (layer.kind == "permute") {
      const std::string& order = *head_option(layer, "order");
      return last_number(order) == std::to_string(std::ranges::count(order, ','));
    }
    if (layer.kind != "reshape") return false;
    std::string& shape = *head_option(layer, "shape");
    if (last_number(shape) != classes_ || shape.find('-') != std::string::npos) return false;
    shapes_.push_back(&shape);
    return true;
  }

  // A parameter is an operand of a sum or a product, which starts without an effect.
  void take_operand(int sum, int operand) {
    if (operand < 0) return open_.push_back(operand);
    OnnxListedLayer& layer = layers_.at(operand);
    if (layer.kind != "parameter" && layer.kind != "constant") return open_.push_back(operand);
    const std::string last = last_number(*head_option(layer, "shape"));
    if (last.empty() || last == "1") return;  // the same for all classes
    if (layer.kind == "constant" || last != classes_ || is_shared(layer))
      return open_.push_back(-1);
    if (has_classes_[static_cast<std::size_t>(operand)]) return;
    has_classes_[static_cast<std::size_t>(operand)] = true;
    heads_.push_back(operand);
    const std::string& kind = layers_.at(sum).kind;
    initial_values_.emplace_back(operand, kind == "multiply" || kind == "divide" ? "1" : "0");
  }

  bool take(int at) {
    constexpr const char* kSums[] = {"add", "subtract", "multiply", "divide"};
    OnnxListedLayer& layer = layers_.at(at);
    if (const std::string* outputs = outputs_of(layer)) {
      heads_.push_back(at);
      return *outputs == classes_ && !is_shared(layer) && !is_computed(layer) &&
             head_option(layer, "groups") == nullptr;
    }
    passes_[static_cast<std::size_t>(at)] = true;
    if (std::ranges::find(kSums, layer.kind) != std::end(kSums)) {
      for (const int input : layer.inputs) take_operand(at, input);
      return true;
    }
    if (layer.kind == "parameter" && last_number(*head_option(layer, "shape")) != classes_)
      return false;
    if (layer.kind == "batch_norm2d" || layer.kind == "parameter") {
      if (is_shared(layer) || is_computed(layer)) return false;
      heads_.push_back(at);
    } else if (!keeps_classes(layer)) {
      return false;
    }
    open_.insert(open_.end(), layer.inputs.begin(), layer.inputs.end());
    return true;
  }

  // Whether a layer that does not pass the classes on to the logits reads one that has them.
  bool is_read_elsewhere(const std::vector<bool>& needed) const {
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (needed[i] && !passes_[i] && std::ranges::any_of(layers_.all()[i].inputs, [&](int input) {
            return input >= 0 && has_classes_[static_cast<std::size_t>(input)];
          }))
        return true;
    return false;
  }

  OnnxLayerList& layers_;
  std::string classes_;
  std::vector<bool> has_classes_, passes_;  // by layer
  std::vector<int> open_;                   // layers to follow
  std::vector<int> heads_;
  std::vector<std::string*> shapes_;  // options of reshape
  std::vector<std::pair<int, std::string>> initial_values_;
};

}  // namespace

std::vector<std::string> open_heads(OnnxLayerList& layers, const std::vector<bool>& needed,
                                    const OnnxActivation& output) {
  HeadSearch search(layers, output);
  return search.run(needed) ? search.replace() : std::vector<std::string>{};
}

}  // namespace models
