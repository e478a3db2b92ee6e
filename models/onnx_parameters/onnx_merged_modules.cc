#include "models/onnx_parameters/onnx_merged_modules.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "models/onnx_origins/onnx_calls.h"
#include "models/onnx_translation/onnx_translation.h"

namespace models {
namespace {

std::string module_of_parameter(const std::string& name) {
  return name.substr(0, std::min(name.rfind('.'), name.size()));
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

class ModuleSeparation {
 public:
  explicit ModuleSeparation(const io::OnnxGraph& graph) : graph_(graph), origins_(graph) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      for (const std::string& output : graph.nodes[i].outputs) producers_[output] = i;
  }

  std::optional<io::OnnxGraph> run() {
    find_modules();
    find_lost();
    if (lost_.empty() && !is_changed_) return std::nullopt;
    std::vector<io::ReadNode> all;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      io::ReadNode node = graph_.nodes[i];
      if (node.scopes.empty()) node.scopes = scopes_[i];
      if (lost_.contains(modules_[i])) separate(i, node, all);
      all.push_back(std::move(node));
      if (all.size() > io::kMaxOnnxNodes) return std::nullopt;
    }
    io::OnnxGraph separated = graph_;
    separated.nodes = std::move(all);
    return separated;
  }

 private:
  // A part of a parameter, which a rule has written without metadata, belongs to the module that
  // reads it.
  void find_modules() {
    std::unordered_map<std::string, std::string> readers;  // scopes by value
    std::unordered_set<std::string> constants;
    for (const io::StoredTensor& tensor : graph_.constants) constants.insert(tensor.name);
    scopes_.resize(graph_.nodes.size());
    modules_.resize(graph_.nodes.size());
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      io::ReadNode node;
      node.scopes = graph_.nodes[i].scopes;
      const io::ReadNode& own = graph_.nodes[i];
      const bool is_part = own.type == "Split" && node.scopes.empty() && own.call.empty() &&
                           !own.inputs.empty() && constants.contains(own.inputs[0]);
      for (const std::string& output : own.outputs)
        if (const auto reader = readers.find(output);
            is_part && node.scopes.empty() && reader != readers.end())
          node.scopes = reader->second;
      is_changed_ = is_changed_ || node.scopes != graph_.nodes[i].scopes;
      scopes_[i] = node.scopes;
      modules_[i] = node.scopes.empty() ? "" : module_of(node);
      for (const std::string& input : graph_.nodes[i].inputs) readers[input] = node.scopes;
    }
  }

  // Modules with nodes and a parameter that no node reads.
  void find_lost() {
    std::unordered_set<std::string> read;
    for (const io::StoredTensor& tensor : graph_.constants) read.insert(tensor.name);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const io::ReadNode& node = graph_.nodes[i];
      for (const std::string& name : origins_.parameters_of(read_onnx_call(node.call)))
        read.insert(name);
      for (const std::string& input : node.inputs)
        if (node.call.empty() && !modules_[i].empty())
          read.insert(modules_[i] + input.substr(std::min(input.rfind('.'), input.size())));
    }
    const std::unordered_set<std::string> used(modules_.begin(), modules_.end());
    for (const std::string& name : origins_.parameters())
      if (const std::string module = module_of_parameter(name);
          !read.contains(name) && used.contains(module) &&
          (name.ends_with("weight") || name.ends_with("bias")))
        lost_[module].push_back(name);
  }

  // Whether the other module has parameters of the same names.
  bool is_twin(const std::string& module, const std::string& other) const {
    if (other.empty() || other == module) return false;
    return std::ranges::all_of(lost_.at(module), [&](const std::string& name) {
      return std::ranges::count(origins_.parameters(), other + name.substr(module.size())) > 0;
    });
  }

  // Lets a node of a lost module read copies of the values that a twin has computed.
  void separate(std::size_t at, io::ReadNode& node, std::vector<io::ReadNode>& all) {
    const OnnxCall call = read_onnx_call(node.call);
    for (std::string& input : node.inputs) {
      const auto producer = producers_.find(input);
      if (producer == producers_.end() || producer->second >= at) continue;
      const bool is_named = std::ranges::find(call.arguments, "%" + input) != call.arguments.end();
      const std::string& other = modules_[producer->second];
      if (!is_named && is_twin(modules_[at], other))
        input = copied(input, other, modules_[at], all);
    }
  }

  // The value as `to` computes it, which `from` does in the file.
  std::string copied(const std::string& value, const std::string& from, const std::string& to,
                     std::vector<io::ReadNode>& all, int depth = 0) {
    constexpr int kMaxDepth = 1000;
    const auto producer = producers_.find(value);
    if (producer == producers_.end() || modules_[producer->second] != from || depth > kMaxDepth ||
        all.size() > io::kMaxOnnxNodes)
      return value;
    const std::string name = value + "\n" + to;
    if (!copies_.insert(name).second) return name;
    const std::size_t at = producer->second;
    io::ReadNode copy = graph_.nodes[at];
    for (std::string& input : copy.inputs) input = copied(input, from, to, all, depth + 1);
    for (std::string& output : copy.outputs) {
      if (output.empty()) continue;
      output += "\n" + to;
      copies_.insert(output);
    }
    copy.scopes = scopes_[at];
    replace_all(copy.scopes, "'" + from + "'", "'" + to + "'");
    std::string old_names = "%p_" + from + "_", new_names = "%p_" + to + "_";
    std::ranges::replace(old_names, '.', '_');
    std::ranges::replace(new_names, '.', '_');
    replace_all(copy.call, old_names, new_names);
    all.push_back(std::move(copy));
    return name;
  }

  const io::OnnxGraph& graph_;
  OnnxOrigins origins_;
  std::unordered_map<std::string, std::size_t> producers_;          // nodes by value
  std::vector<std::string> scopes_, modules_;                       // of nodes
  std::unordered_map<std::string, std::vector<std::string>> lost_;  // parameters by module
  std::unordered_set<std::string> copies_;
  bool is_changed_ = false;  // some node has got scopes
};

}  // namespace

std::optional<io::OnnxGraph> with_separate_modules(const io::OnnxGraph& graph) {
  if (!graph.metadata.contains(io::kOnnxSignature)) return std::nullopt;
  return ModuleSeparation(graph).run();
}

}  // namespace models
