#include "tools/run/data/foreign_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/train/saving/weights.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/byte_source.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"

namespace tools {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Returns the file's shape for `count` numbers: the data may have other classes than the file.
// Empty for a count that no number of classes explains.
Shape shape_for(const Shape& shape, std::int64_t classes, std::int64_t count) {
  const std::int64_t filed = elements_of(shape);
  if (filed == count) return shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != classes || classes < 1 || count % (filed / classes) != 0) continue;
    Shape other = shape;
    other[d] = count / (filed / classes);
    return other;
  }
  return {};
}

// Returns the layout of an array by its name in PyTorch: "pos" is the engine's "pos.weight".
const models::FileLayout* find_layout(const models::FileLayouts& layouts, const std::string& name) {
  for (const char* suffix : {"", ".weight", ".value"})
    if (const auto found = layouts.arrays.find(name + suffix); found != layouts.arrays.end())
      return &found->second;
  return nullptr;
}

}  // namespace

void to_foreign_layout(const models::FileLayouts& layouts, std::vector<io::NamedArray>& arrays) {
  for (io::NamedArray& array : arrays) {
    const auto found = layouts.arrays.find(array.name);
    if (found == layouts.arrays.end()) continue;
    const auto& [filed, transposed] = found->second;
    const std::int64_t count = elements_of(array.shape);
    const Shape shape = shape_for(filed, layouts.classes, count);
    if (elements_of(shape) != count) continue;
    array.shape = shape;
    if (!transposed) continue;
    std::swap(array.shape[0], array.shape[1]);
    array = io::transposed(std::move(array));
  }
}

void from_foreign_layout(const models::FileLayouts& layouts, std::vector<io::NamedArray>& arrays) {
  std::vector<io::NamedArray*> found;
  for (io::NamedArray& array : arrays) {
    const models::FileLayout* layout = find_layout(layouts, engine::plain_name(array.name));
    if (layout == nullptr || !layout->transposed || array.shape.size() != 2) continue;
    const Shape& shape = layout->shape;
    if (shape[0] != shape[1] && array.shape == Shape{shape[1], shape[0]}) return;
    found.push_back(&array);
  }
  for (io::NamedArray* array : found) *array = io::transposed(std::move(*array));
}

void from_foreign_layout(const ReadingModel& model, const std::string& path,
                         std::vector<io::NamedArray>& arrays) {
  const bool may_differ = !model.definition.empty() || model.name.ends_with(".onnx");
  if (!may_differ || models::is_published_model(path) || io::is_checkpoint(*io::open_bytes(path)))
    return;
  from_foreign_layout(models::file_layouts(model.name, model.definition), arrays);
}

}  // namespace tools
