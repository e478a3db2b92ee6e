// Uses the same tags in every step, so that TensorBoard shows each sample over time.
#include "tools/run/data/shown_samples.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/data/images/image_encoder.h"

namespace tools {
namespace {

constexpr std::array<std::uint8_t, 3> kGreen{42, 138, 62}, kRed{179, 40, 45};

// Returns a cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : base::escape_text(text))
    out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

}  // namespace

std::vector<std::int64_t> spread_samples(const io::Dataset& set, std::int64_t count) {
  std::vector<std::int64_t> samples;
  const std::int64_t size = set.size(), wanted = std::min(count, size);
  for (std::int64_t i = 0; i < wanted; ++i) samples.push_back(i * size / wanted);
  return samples;
}

ShownSamples::ShownSamples(std::unique_ptr<SamplePredictor> predictor, const io::Dataset& set,
                           std::vector<std::string> names, const std::vector<std::int64_t>& samples)
    : predictor_(std::move(predictor)), set_(set), names_(std::move(names)), samples_(samples) {
  if (has_pictures(set))
    for (const std::int64_t sample : samples_) pictures_.push_back(picture_of(set, sample));
}

void ShownSamples::show(std::int64_t step, io::EventFile& file) {
  predictor_->load();
  const std::vector<double>& logits = predictor_->logits(samples_);
  const std::size_t classes = logits.size() / samples_.size();
  std::vector<io::EventFile::Image> images;
  std::string table = "| sample | label | prediction | probability |\n|---|---|---|---|\n";
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const std::span row = std::span(logits).subspan(i * classes, classes);
    const std::int64_t label =
                           set_.as<io::ClassLabels>().ids[static_cast<std::size_t>(samples_[i])],
                       said = predicted_class(row);
    const std::string place = std::to_string(samples_[i]);
    table += "| " + place + " | " + cell(names_.at(static_cast<std::size_t>(label))) + " | " +
             (said == label ? "" : "**") + cell(names_.at(static_cast<std::size_t>(said))) +
             (said == label ? "" : "**") + " | " +
             base::number_text("%.4f", probability_of(row, said)) + " |\n";
    if (pictures_.empty()) continue;
    const Picture shown = framed(pictures_[i], said == label ? kGreen : kRed);
    images.push_back({.tag = "samples/test_" + place,
                      .png = io::encode_png(shown.pixels, shown.height, shown.width, 3),
                      .height = shown.height,
                      .width = shown.width});
  }
  file.images(step, images);
  file.text(step, "samples/predictions", table);
}

}  // namespace tools
