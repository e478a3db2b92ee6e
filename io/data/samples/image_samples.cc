// Fills batches with images: augmented and normalized on this machine, or as bytes for a device.
#include "io/data/samples/image_samples.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/images/image_preparer.h"
#include "io/data/samples/keep_chosen.h"
#include "io/data/samples/sample_checks.h"

namespace io {
namespace {

// Some images of another source with new indices.
class ChosenImages : public ImageSource {
 public:
  ChosenImages(std::shared_ptr<const ImageSource> all, std::vector<std::int64_t> chosen)
      : all_(std::move(all)), chosen_(std::move(chosen)) {}
  void read(std::int64_t id, SplitMix* crop, std::span<std::uint8_t> out) const override {
    all_->read(chosen_[static_cast<std::size_t>(id)], crop, out);
  }
  void add_to(base::StreamDigest& digest) const override {
    all_->add_to(digest);
    digest.add(std::as_bytes(std::span(chosen_)));
  }

 private:
  const std::shared_ptr<const ImageSource> all_;
  const std::vector<std::int64_t> chosen_;
};

// Images converted to numbers.
class PreparedImages : public BatchPart {
 public:
  PreparedImages(const ImageSamples& images, const Preparation& how)
      : images_(images),
        preparer_(images.format, how.set, how.normalization, how.augmentation),
        resized_crop_(how.augmentation.resized_crop),
        seed_(how.seed),
        width_(static_cast<std::size_t>(images.format.count())) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.samples.resize(samples * width_);
    if (images_.source) memory.image.resize(width_);
  }

  void fill(BatchMemory& memory) const override {
    Batch& batch = memory.batch;
    for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
      const std::int64_t id = batch.sample_ids[i];
      preparer_.prepare(read(memory, id), augmentation_random(seed_, batch.epoch, id),
                        memory.samples.data() + i * width_);
    }
    batch.samples = std::span(memory.samples).first(batch.sample_ids.size() * width_);
  }

 private:
  const std::uint8_t* read(BatchMemory& memory, std::int64_t id) const {
    if (!images_.source) return images_.pixels.data() + static_cast<std::size_t>(id) * width_;
    SplitMix crop = resized_crop_random(seed_, memory.batch.epoch, id);
    images_.source->read(id, resized_crop_ ? &crop : nullptr, memory.image);
    return memory.image.data();
  }

  const ImageSamples& images_;
  const ImagePreparer preparer_;
  const bool resized_crop_;
  const std::uint64_t seed_;
  const std::size_t width_;
};

// Images as they are stored, unless a device has them, with the random draw of each.
class StoredImages : public BatchPart {
 public:
  StoredImages(const ImageSamples& images, const Preparation& how)
      : images_(images),
        preparer_(images.format, how.set, how.normalization, how.augmentation),
        seed_(how.seed),
        width_(how.resident ? 0 : static_cast<std::size_t>(images.format.count())) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.pixels.resize(samples * width_);
    memory.draws.resize(samples);
  }

  void fill(BatchMemory& memory) const override {
    Batch& batch = memory.batch;
    const std::size_t count = batch.sample_ids.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t id = batch.sample_ids[i];
      std::copy_n(images_.pixels.data() + static_cast<std::size_t>(id) * width_, width_,
                  memory.pixels.data() + i * width_);
      memory.draws[i] = preparer_.draw(augmentation_random(seed_, batch.epoch, id));
    }
    batch.pixels = std::span(memory.pixels).first(count * width_);
    batch.draws = std::span(memory.draws).first(count);
  }

 private:
  const ImageSamples& images_;
  const ImagePreparer preparer_;
  const std::uint64_t seed_;
  const std::size_t width_;  // bytes of an image in a batch
};

}  // namespace

std::vector<float> ImageSamples::statistics() const {
  std::vector<float> all = format.mean;
  all.insert(all.end(), format.deviation.begin(), format.deviation.end());
  return all;
}

void ImageSamples::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(pixels)));
  if (source) source->add_to(digest);
}

void ImageSamples::keep(std::span<const std::int64_t> chosen) {
  if (source)
    source = std::make_shared<ChosenImages>(
        std::move(source), std::vector<std::int64_t>(chosen.begin(), chosen.end()));
  else
    keep_chosen(pixels, static_cast<std::size_t>(format.count()), chosen);
}

std::string ImageSamples::intake() const {
  return "images of " + std::to_string(format.shape[2]) + " channels";
}

std::unique_ptr<BatchPart> ImageSamples::batch_part(const Preparation& how) const {
  if (how.bytes && source) throw ConfigError("data set " + how.set + " holds no images as bytes");
  if (how.augmentation.resized_crop && !source)
    throw ConfigError(
        "data set " + how.set +
        " is not a folder of images: --augment resized-crop needs images in full size");
  if (!source) check_stored(how, pixels.size(), "bytes", static_cast<std::size_t>(format.count()));
  if (how.resident && !how.bytes)
    throw ConfigError("data set " + how.set + ": a device reads images as bytes");
  if (how.bytes) return std::make_unique<StoredImages>(*this, how);
  return std::make_unique<PreparedImages>(*this, how);
}

std::span<const std::uint8_t> ImageSamples::read(std::int64_t sample,
                                                 std::vector<std::uint8_t>& buffer) const {
  const auto count = static_cast<std::size_t>(format.count());
  if (!source) return std::span(pixels).subspan(static_cast<std::size_t>(sample) * count, count);
  buffer.resize(count);
  source->read(sample, nullptr, buffer);
  return buffer;
}

}  // namespace io
