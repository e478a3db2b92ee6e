// Predicts single samples of a data set, and makes their pictures, for pages and event files that
// show samples beside predictions. Supports images and rows of tables; text has no single samples.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/inference.h"
#include "io/data/dataset/dataset.h"
#include "tools/run/choices/compute_choice.h"

namespace tools {

class SamplePredictor {
 public:
  // For at most `most` samples at a time. All arguments outlive this. Throws as engine::Inference
  // does. REQUIRES: single samples (SampleTraits).
  SamplePredictor(const engine::Graph& graph, engine::ModelState& state,
                  engine::ThreadPool& threads, const Compute& compute, const io::Dataset& set,
                  io::Normalization normalization, std::int64_t most);

  // Uses the current state from now on.
  void load() { inference_.load(); }
  // Returns a row of logits for each of these samples, at most `most` (for a regression: the
  // standardized number); valid until the next call. Throws io::DataError for an image that cannot
  // be read.
  const std::vector<double>& logits(std::span<const std::int64_t> samples);

 private:
  engine::Inference inference_;
  const std::unique_ptr<io::BatchPart> part_;  // for the set's samples
  io::BatchMemory memory_;
  std::vector<engine::ops::ImageDraw> draws_;
};

// Return the index of the first largest logit, and the softmax at one index, for a row of logits.
std::int64_t predicted_class(std::span<const double> logits);
double probability_of(std::span<const double> logits, std::int64_t place);

// Returns true if samples of the set can be shown as pictures: images of 1 or 3 channels and more
// than one pixel, in a build that writes PNG.
bool has_pictures(const io::Dataset& set);
// Sample `i` as stored, before any normalization, reduced by a whole factor to at most `max_side`
// pixels per side. REQUIRES: has_pictures(set). Throws io::DataError.
struct Picture {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels = {};
};
Picture picture_of(const io::Dataset& set, std::int64_t i, std::int64_t max_side = 96);
// Returns the picture in color, within a border of 2 pixels of this color (red, green, blue).
Picture framed(const Picture& picture, const std::array<std::uint8_t, 3>& color);

}  // namespace tools
