// Formats the errors of axes.
#include "engine/layers/general/axis_checks.h"

#include <string>

namespace engine::layers {

int expect_axis(const Shape& shape, std::int64_t axis) {
  const int rank = shape.rank();
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  throw ShapeError("expected an axis of " + shape.to_string() + ", from " + std::to_string(-rank) +
                   " to " + std::to_string(rank - 1) + ", got " + std::to_string(axis));
}

std::vector<LayerOption> option_list(std::string_view name,
                                     const std::vector<std::int64_t>& values) {
  std::vector<LayerOption> options;
  for (const std::int64_t value : values) options.push_back({name, static_cast<double>(value)});
  return options;
}

}  // namespace engine::layers
