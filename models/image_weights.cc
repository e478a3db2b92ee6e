// Compares names and shapes only. The last layer, which a model is fine-tuned with, may have any
// number of rows.
#include "models/image_weights.h"

#include <algorithm>
#include <map>
#include <utility>

#include "models/model_catalog.h"

namespace models {
namespace {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Shapes shapes_of(const std::vector<io::NamedArray>& arrays) {
  Shapes shapes;
  for (const io::NamedArray& array : arrays)
    if (array.section == io::Section::kParameter) shapes[array.name] = array.shape;
  return shapes;
}

// Returns the parameters, and the name of the last matrix.
std::pair<Shapes, std::string> parameters_of(const engine::Graph& graph) {
  Shapes shapes;
  std::string last;
  for (engine::NodeId id = 0; id < static_cast<engine::NodeId>(graph.nodes().size()); ++id)
    for (const engine::ParameterSpec& spec : graph.own_parameters(id)) {
      const std::string name = graph.nodes()[static_cast<std::size_t>(id)].name + "." + spec.name;
      const auto& dims = spec.layout.file_shape.dims();
      shapes[name].assign(dims.begin(), dims.end());
      if (dims.size() == 2) last = name;
    }
  return {std::move(shapes), last};
}

// Returns the number of classes, or 0 if the model has other parameters.
std::int64_t matching_classes(const Shapes& found, const std::string& model) {
  const ModelOptions defaults = default_options(model);
  if (defaults.sample_shape.rank() != 3) return 0;
  auto [wanted, head] = parameters_of(build_model(model, defaults));
  const auto last = found.find(head);
  if (last == found.end() || last->second.size() != 2 || found.size() != wanted.size()) return 0;
  const std::int64_t classes = last->second[0];
  wanted[head][0] = classes;
  const std::string bias = head.substr(0, head.rfind('.')) + ".bias";
  if (const auto place = wanted.find(bias); place != wanted.end()) place->second[0] = classes;
  return found == wanted ? classes : 0;
}

}  // namespace

std::int64_t classes_of_image_weights(const std::string& model,
                                      const std::vector<io::NamedArray>& arrays) {
  const bool is_built_in = std::ranges::count(model_names(), model) > 0;
  return is_built_in ? matching_classes(shapes_of(arrays), model) : 0;
}

std::optional<ImageWeights> recognize_image_weights(const std::vector<io::NamedArray>& arrays) {
  const Shapes found = shapes_of(arrays);
  for (const std::string& model : model_names())
    if (const std::int64_t classes = matching_classes(found, model); classes > 0)
      return ImageWeights{.model = model, .classes = classes};
  return std::nullopt;
}

}  // namespace models
