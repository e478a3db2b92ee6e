// What a model says of single samples of a data set, and their pictures: for pages and event files
// that show samples beside predictions. Images and rows of tables; text has no samples of a kind
// that could be shown so.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/inference.h"
#include "io/data/dataset/splits.h"
#include "tools/run/choices/compute_choice.h"

namespace tools {

class SamplePredictor {
 public:
  // For `most` samples at once. Everything given outlives this. Throws what engine::Inference
  // throws. REQUIRES: single samples (SampleTraits).
  SamplePredictor(const engine::Graph& graph, engine::ModelState& state,
                  engine::ThreadPool& threads, const Compute& compute, const io::Dataset& set,
                  io::Normalization normalization, std::int64_t most);

  // The state as it stands is judged from now on.
  void load() { inference_.load(); }
  // Of these samples, `most` of them or fewer, a row of logits each (of a regression: the number,
  // standardized); valid until the next call.
  // Throws io::DataError for an image that cannot be read.
  const std::vector<double>& logits(std::span<const std::int64_t> samples);

 private:
  engine::Inference inference_;
  const std::unique_ptr<io::BatchPart> part_;  // of the set's samples
  io::BatchMemory memory_;
  std::vector<engine::ops::ImageDraw> draws_;
};

// The place of the first largest logit, and the softmax at one place. Of a row of logits.
std::int64_t predicted_class(std::span<const double> logits);
double probability_of(std::span<const double> logits, std::int64_t place);

// Whether samples of the set can be shown as pictures: images of 1 or 3 channels and more than one
// pixel, in a build that writes PNG.
bool has_pictures(const io::Dataset& set);
// Sample `i` as it is stored, before any normalization, reduced by a whole factor to at most
// `max_side` pixels a side. REQUIRES: has_pictures(set). Throws io::DataError.
struct Picture {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels = {};
};
Picture picture_of(const io::Dataset& set, std::int64_t i, std::int64_t max_side = 96);
// In color, within a border of 2 pixels of this color (red, green, blue).
Picture framed(const Picture& picture, const std::array<std::uint8_t, 3>& color);

}  // namespace tools
