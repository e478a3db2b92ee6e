// Random images of any shape with random labels, and texts of random tokens, for benchmarks.
#pragma once

#include <array>
#include <cstdint>

#include "io/data/dataset/dataset.h"

namespace io {

// Every byte and every label is uniform and depends only on (seed, stream, position). Without mean
// and deviation. REQUIRES: positive shape, count and classes whose product fits in memory.
Dataset draw_synthetic(const std::array<std::int64_t, 3>& shape, std::int64_t classes,
                       std::int64_t count, std::uint64_t seed, std::uint64_t stream);

// The same for `count` consecutive texts of `context` tokens each, with ids below `vocabulary`.
Dataset draw_synthetic_tokens(std::int64_t context, std::int64_t vocabulary, std::int64_t count,
                              std::uint64_t seed, std::uint64_t stream);

}  // namespace io
