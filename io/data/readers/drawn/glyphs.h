// The built-in data set: digits drawn from strokes, each distorted and blurred differently.
#pragma once

#include <cstdint>

#include "io/data/dataset/dataset.h"

namespace io {

constexpr std::int64_t kGlyphTrainCount = 60'000, kGlyphTestCount = 10'000;

enum class GlyphSplit : std::uint64_t { kTrain = 0, kTest = 1 };

// Draws `count` images of 28 x 28 x 1, white on black as in MNIST. Image i depends only on (seed,
// split, i) and is the same, byte for byte, on every machine; every ten images from a multiple of
// ten on show each digit once. Without mean and deviation.
Dataset draw_glyphs(GlyphSplit split, std::int64_t count, std::uint64_t seed);

}  // namespace io
