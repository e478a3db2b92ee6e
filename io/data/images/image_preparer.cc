// Maps pixels to normalized values by table lookup, at the positions given by the augmentation.
#include "io/data/images/image_preparer.h"

#include <algorithm>
#include <string>

#include "io/base/files/io_error.h"

namespace io {

ImagePreparer::ImagePreparer(const ImageFormat& format, const std::string& set,
                             Normalization normalization, const Augmentation& augmentation)
    : height_(format.shape[0]),
      width_(format.shape[1]),
      channels_(format.shape[2]),
      augmentation_(augmentation) {
  const auto channels = static_cast<std::size_t>(channels_);
  const bool standard = normalization == Normalization::kStandard;
  const bool measured = format.mean.size() == channels && format.deviation.size() == channels;
  if (standard && !measured) {
    throw ConfigError("data set " + set + " has no mean and deviation for each of its " +
                      std::to_string(channels) + " channels");
  }
  tables_.resize(channels);
  means_.assign(channels, 0.0f);
  for (std::size_t c = 0; c < channels; ++c) {
    if (standard && !(format.deviation[c] > 0.0f)) {
      throw ConfigError("channel " + std::to_string(c) + " of data set " + set + " has deviation " +
                        std::to_string(format.deviation[c]) +
                        ": it cannot be normalized to 1; use unit normalization");
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const float unit = static_cast<float>(byte) / 255.0f;
      tables_[c][byte] = standard ? (unit - format.mean[c]) / format.deviation[c] : unit;
    }
    if (!standard && measured) means_[c] = format.mean[c];
  }
}

void ImagePreparer::prepare(const std::uint8_t* in, SplitMix random, float* out) const {
  if (!draws()) {
    convert_pixels(in, channels_, height_ * width_, out);
    return;
  }
  const AugmentationDraw drawn = draw(random);
  const std::int64_t row = width_ * channels_;
  for (std::int64_t y = 0; y < height_; ++y) {
    const std::int64_t from = y + drawn.shift_y;
    const bool inside = from >= 0 && from < height_;
    convert_row(inside ? in + from * row : nullptr, drawn, out + y * row);
  }
  cut_hole(drawn, out);
}

AugmentationDraw ImagePreparer::draw(SplitMix random) const {
  return draws() ? draw_augmentation(augmentation_, height_, width_, random) : AugmentationDraw{};
}

std::vector<float> ImagePreparer::table() const {
  std::vector<float> result;
  for (std::size_t c = 0; c < tables_.size(); ++c) {
    result.insert(result.end(), tables_[c].begin(), tables_[c].end());
    result.push_back(means_[c]);
  }
  return result;
}

// Converts a row of the shifted, possibly mirrored image; `in` is nullptr outside of it. As in
// torchvision, padding is a zero byte, not a zero after normalization.
void ImagePreparer::convert_row(const std::uint8_t* in, const AugmentationDraw& draw,
                                float* out) const {
  // Output pixel x is input pixel shift + x, or shift - x if mirrored. Those in [first, end) exist.
  const std::int64_t shift = draw.shift_x + (draw.mirrored ? width_ - 1 : 0);
  const auto within = [&](std::int64_t x) { return std::clamp<std::int64_t>(x, 0, width_); };
  const std::int64_t first =
      in == nullptr ? width_ : within(draw.mirrored ? shift - width_ + 1 : -shift);
  const std::int64_t end = std::max(first, within(draw.mirrored ? shift + 1 : width_ - shift));
  out = pad(first, out);
  if (first < end) {
    const std::int64_t step = draw.mirrored ? -channels_ : channels_;
    in += (draw.mirrored ? shift - first : shift + first) * channels_;
    out = convert_pixels(in, step, end - first, out);
  }
  pad(width_ - end, out);
}

float* ImagePreparer::pad(std::int64_t pixels, float* out) const {
  for (std::int64_t i = 0; i < pixels; ++i)
    for (const std::array<float, 256>& table : tables_) *out++ = table[0];
  return out;
}

float* ImagePreparer::convert_pixels(const std::uint8_t* in, std::int64_t step, std::int64_t pixels,
                                     float* out) const {
  if (channels_ == 1) {
    const std::array<float, 256>& table = tables_[0];
    for (std::int64_t i = 0; i < pixels; ++i, in += step) *out++ = table[*in];
    return out;
  }
  for (std::int64_t i = 0; i < pixels; ++i, in += step) {
    const std::uint8_t* byte = in;
    for (const std::array<float, 256>& table : tables_) *out++ = table[*byte++];
  }
  return out;
}

void ImagePreparer::cut_hole(const AugmentationDraw& draw, float* out) const {
  for (std::int64_t y = draw.cutout_top; y < draw.cutout_bottom; ++y) {
    for (std::int64_t x = draw.cutout_left; x < draw.cutout_right; ++x)
      std::copy(means_.begin(), means_.end(), out + (y * width_ + x) * channels_);
  }
}

}  // namespace io
