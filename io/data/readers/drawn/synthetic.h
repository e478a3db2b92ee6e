// Random images with random labels, of any shape, and texts of random tokens, for benchmarks.
#pragma once

#include <array>
#include <cstdint>

#include "io/data/dataset/splits.h"

namespace io {

// Every byte and every label is uniform and depends on (seed, stream, position) only. Without mean
// and deviation. REQUIRES: positive shape, count and classes whose product fits in memory.
Dataset draw_synthetic(const std::array<std::int64_t, 3>& shape, std::int64_t classes,
                       std::int64_t count, std::uint64_t seed, std::uint64_t stream);

// The same of `count` texts of `context` tokens each, one behind the other, ids below `vocabulary`.
Dataset draw_synthetic_tokens(std::int64_t context, std::int64_t vocabulary, std::int64_t count,
                              std::uint64_t seed, std::uint64_t stream);

}  // namespace io
