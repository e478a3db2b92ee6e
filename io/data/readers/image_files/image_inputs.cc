// Reads images: one in its own file, or many in a file of IDX or CIFAR-10.
#include "io/data/readers/image_files/image_inputs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "io/base/files/io_error.h"
#include "io/data/files/data_file.h"
#include "io/data/files/file_format.h"
#include "io/data/images/image_decoder.h"
#include "io/data/images/resample.h"
#include "io/data/readers/image_files/image_folder.h"

namespace io {
namespace {

std::string size_text(std::int64_t height, std::int64_t width, std::int64_t channels) {
  return std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels);
}
std::string size_text(const ImageSamples& like) {
  return size_text(like.format.shape[0], like.format.shape[1], like.format.shape[2]);
}

std::uint8_t gray(const std::uint8_t* pixel) {  // ITU-R 601 in units of 2^-16, as in Pillow
  return static_cast<std::uint8_t>(
      (19595u * pixel[0] + 38470u * pixel[1] + 7471u * pixel[2] + 0x8000u) >> 16);
}

class SingleImage : public SampleStream {
 public:
  SingleImage(const std::string& path, const ImageSamples& like) : path_(path), like_(like) {}

  void fill(std::int64_t, Wanted wanted, SampleBlock& block) override {
    if (done_) return;
    done_ = true;
    if (wanted == Wanted::kSamples) decode(block);
    block.origins.push_back({path_, 1});
  }
  std::vector<std::string> unknown() const override { return {}; }

 private:
  void decode(SampleBlock& block) const {
    const DecodedImage image = read_image(path_);
    std::vector<std::uint8_t>& pixels = block.samples_like(like_).pixels;
    const std::size_t before = pixels.size();
    pixels.resize(before + static_cast<std::size_t>(like_.format.count()));
    const std::span<std::uint8_t> out = std::span(pixels).subspan(before);
    if (like_.format.scaled)
      resize_and_crop(image, like_.format.shape[0], out);
    else
      take(image, out);
  }

  void take(const DecodedImage& image, std::span<std::uint8_t> out) const {
    const std::int64_t channels = like_.format.shape[2];
    if (image.height != like_.format.shape[0] || image.width != like_.format.shape[1] ||
        (channels != 1 && channels != 3))
      throw DataError(path_ + ": found an image of " + std::to_string(image.height) + " x " +
                      std::to_string(image.width) + ", expected " + size_text(like_) +
                      ", as the model was trained on");
    if (channels == 3) {
      std::ranges::copy(image.pixels, out.begin());
      return;
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = gray(&image.pixels[3 * i]);
  }

  const std::string path_;
  const ImageSamples& like_;
  bool done_ = false;
};

// Records of equal size, whose last sample_count() bytes are an image.
class PackedImages : public SampleStream {
 public:
  PackedImages(const std::string& path, const ImageSamples& like)
      : file_(path), like_(like), pixels_(static_cast<std::size_t>(like.format.count())) {
    planes_ = path.ends_with(".bin") && like.format.shape[0] == 32 && like.format.shape[1] == 32 &&
              like.format.shape[2] == 3;
    record_.resize(pixels_ + (planes_ ? 1 : 0));
    if (!planes_) read_header();
  }

  void fill(std::int64_t most, Wanted wanted, SampleBlock& block) override {
    while (block.count() < most && (planes_ || done_ < count_)) {
      const std::size_t got = file_.read(record_);
      if (got == 0 && planes_ && done_ > 0) return;
      if (got < record_.size())
        throw DataError(file_.path() + ": truncated at image " + std::to_string(done_ + 1) +
                        ": found " + std::to_string(got) + " bytes, expected " +
                        std::to_string(record_.size()));
      if (wanted == Wanted::kSamples) append(block);
      block.origins.push_back({file_.path(), ++done_});
    }
    if (!planes_ && done_ == count_ && !checked_) {
      checked_ = true;
      if (const std::uint64_t more = file_.skip_to_end(); more > 0)
        throw DataError(file_.path() + ": found " + std::to_string(more) +
                        " bytes after the last image, expected none");
    }
  }
  std::vector<std::string> unknown() const override { return {}; }

 private:
  void read_header() {
    std::array<std::uint8_t, 16> bytes{};
    const std::size_t got = file_.read(bytes);
    const auto word = [&](std::size_t i) {
      return std::int64_t{bytes[i]} << 24 | std::int64_t{bytes[i + 1]} << 16 |
             std::int64_t{bytes[i + 2]} << 8 | std::int64_t{bytes[i + 3]};
    };
    if (const std::string format = format_of(std::span(bytes).first(got)); !format.empty())
      throw DataError(file_.path() + ": found " + format +
                      "; images are *.png, *.jpg and *.jpeg: convert or rename it");
    if (got < bytes.size() || word(0) != 0x803)
      throw DataError(
          file_.path() + ": found neither *.png, *.jpg nor a file of images in IDX format" +
          (like_.format.shape[0] == 32 && like_.format.shape[2] == 3 ? " nor CIFAR-10's *.bin"
                                                                     : "") +
          ", expected images of " + size_text(like_));
    if (word(8) != like_.format.shape[0] || word(12) != like_.format.shape[1] ||
        like_.format.shape[2] != 1)
      throw DataError(file_.path() + ": found images of " + size_text(word(8), word(12), 1) +
                      ", expected " + size_text(like_) + ", as the model was trained on");
    count_ = word(4);
    if (count_ == 0) throw DataError(file_.path() + ": found 0 images, expected at least 1");
  }

  void append(SampleBlock& block) const {
    std::vector<std::uint8_t>& pixels = block.samples_like(like_).pixels;
    if (!planes_) {
      pixels.insert(pixels.end(), record_.begin(), record_.end());
      return;
    }
    const std::size_t plane = pixels_ / 3;
    for (std::size_t i = 0; i < plane; ++i)
      for (std::size_t c = 0; c < 3; ++c) pixels.push_back(record_[1 + c * plane + i]);
  }

  DataFile file_;
  const ImageSamples& like_;
  const std::size_t pixels_;
  bool planes_ = false;  // CIFAR-10: a label, then three planes
  bool checked_ = false;
  std::vector<std::uint8_t> record_;
  std::int64_t count_ = 0, done_ = 0;
};

}  // namespace

std::unique_ptr<SampleStream> open_images(const std::string& path, const ImageSamples& like) {
  if (is_image_name(path)) return std::make_unique<SingleImage>(path, like);
  return std::make_unique<PackedImages>(path, like);
}

}  // namespace io
