// Prepares samples one by one in the calling thread, because there are few of them.
#include "tools/run/data/sample_predictor.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/train/step/batch_views.h"
#include "io/data/images/image_encoder.h"

namespace tools {

SamplePredictor::SamplePredictor(const engine::Graph& graph, engine::ModelState& state,
                                 engine::ThreadPool& threads, const Compute& compute,
                                 const io::Dataset& set, io::Normalization normalization,
                                 std::int64_t most)
    : inference_(graph, state, threads,
                 {.batch = most,
                  .dtype = compute.storage,
                  .device = compute.device,
                  .products = compute.products}),
      part_(io::batch_part(set.samples,
                           {.set = set.name, .size = set.size(), .normalization = normalization})) {
  part_->reserve(memory_, static_cast<std::size_t>(most));
}

const std::vector<double>& SamplePredictor::logits(std::span<const std::int64_t> samples) {
  memory_.batch.sample_ids = samples;
  part_->fill(memory_);
  inference_.predict(engine::view_of(memory_.batch, draws_));
  return inference_.logits();
}

std::int64_t predicted_class(std::span<const double> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

double probability_of(std::span<const double> logits, std::int64_t place) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return std::exp(logits[static_cast<std::size_t>(place)] - most) / sum;
}

bool has_pictures(const io::Dataset& set) {
  const auto* images = set.find<io::ImageSamples>();
  if (images == nullptr) return false;
  const auto [height, width, channels] = images->format.shape;
  return (channels == 1 || channels == 3) && height * width > 1 && io::has_png_encoder();
}

Picture picture_of(const io::Dataset& set, std::int64_t i, std::int64_t max_side) {
  const auto& images = set.as<io::ImageSamples>();
  const auto [height, width, channels] = images.format.shape;
  const std::int64_t factor = (std::max(height, width) + max_side - 1) / max_side;
  Picture picture{.height = (height + factor - 1) / factor,
                  .width = (width + factor - 1) / factor,
                  .channels = channels};
  std::vector<std::uint8_t> buffer;
  const std::span<const std::uint8_t> pixels = images.read(i, buffer);
  // Each pixel is the mean of a square of factor x factor pixels, cropped at the border.
  for (std::int64_t y = 0; y < height; y += factor)
    for (std::int64_t x = 0; x < width; x += factor)
      for (std::int64_t c = 0; c < channels; ++c) {
        std::int64_t sum = 0, count = 0;
        for (std::int64_t v = y; v < std::min(y + factor, height); ++v)
          for (std::int64_t u = x; u < std::min(x + factor, width); ++u, ++count)
            sum += pixels[static_cast<std::size_t>((v * width + u) * channels + c)];
        picture.pixels.push_back(static_cast<std::uint8_t>((sum + count / 2) / count));
      }
  return picture;
}

Picture framed(const Picture& picture, const std::array<std::uint8_t, 3>& color) {
  constexpr std::int64_t kBorder = 2;
  Picture result{
      .height = picture.height + 2 * kBorder, .width = picture.width + 2 * kBorder, .channels = 3};
  for (std::int64_t y = -kBorder; y < picture.height + kBorder; ++y)
    for (std::int64_t x = -kBorder; x < picture.width + kBorder; ++x) {
      const bool inside = y >= 0 && y < picture.height && x >= 0 && x < picture.width;
      const std::int64_t at = (y * picture.width + x) * picture.channels;
      for (std::int64_t c = 0; c < 3; ++c)
        result.pixels.push_back(
            inside ? picture.pixels[static_cast<std::size_t>(at + (picture.channels == 3 ? c : 0))]
                   : color[static_cast<std::size_t>(c)]);
    }
  return result;
}

}  // namespace tools
