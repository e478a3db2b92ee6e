// Chooses a part of a set with the same fraction of every class.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace io {

// Returns the positions of `count` of the labels, ascending. Each class has its proportional
// number, rounded by the largest remainder method, and at least one if `count` is not below the
// number of classes that occur; `seed` selects the samples of a class. REQUIRES: 0 < count <=
// labels.size().
std::vector<std::int64_t> stratified_positions(std::span<const std::int32_t> labels,
                                               std::int64_t count, std::uint64_t seed);

}  // namespace io
