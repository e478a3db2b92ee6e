// Checks of axes, and lists of numbers as options of a layer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/layers/layer.h"

namespace engine::layers {

// Returns the axis, counted from 0. Throws ShapeError if the shape does not have it.
int expect_axis(const Shape& shape, std::int64_t axis);

// A list is one option of this name for each of its numbers.
std::vector<LayerOption> option_list(std::string_view name,
                                     const std::vector<std::int64_t>& values);

}  // namespace engine::layers
