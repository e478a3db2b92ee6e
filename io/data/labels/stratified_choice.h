// Chooses a part of a set, of every class its share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace io {

// Positions of `count` of the labels, ascending. Each class has its share, rounded by the largest
// remainder, and at least one where `count` is not below the number of classes that occur; which
// ones of a class is drawn by `seed`. REQUIRES: 0 < count <= labels.size().
std::vector<std::int64_t> stratified_positions(std::span<const std::int32_t> labels,
                                               std::int64_t count, std::uint64_t seed);

}  // namespace io
