// A part of a data set for --limit: of every class its share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/data/sources/dataset.h"

namespace io {

// Positions of `count` of the labels, ascending. Each class has its share, rounded by the largest
// remainder, and at least one where `count` is not below the number of classes that occur; which
// ones of a class is drawn by `seed`. REQUIRES: 0 < count <= labels.size().
std::vector<std::int64_t> stratified_positions(std::span<const std::int32_t> labels,
                                               std::int64_t count, std::uint64_t seed);

// Keeps `count` samples: those of stratified_positions() in the order of the set, or the first
// windows of tokens. Mean and deviation stay. REQUIRES: 0 < count <= set.size().
void keep_samples(Dataset& set, std::int64_t count, std::uint64_t seed);

}  // namespace io
