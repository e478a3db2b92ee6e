// Reads a file as a whole, and hands out its samples.
#include "io/data/readers/arrays/array_inputs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "io/base/files/io_error.h"
#include "io/data/readers/arrays/array_file.h"

namespace io {
namespace {

std::string extents_text(const ArraySamples& samples) {
  std::string text;
  for (const std::int64_t extent : samples.model_shape())
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

// NumPy's formats, by their first bytes; the name decides between them.
void check_format(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return;  // opening it reports the error
  std::array<char, 6> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  const std::string_view bytes(first.data(), first.size());
  if (bytes.starts_with("PK") || bytes == "\x93NUMPY") return;
  throw DataError(path +
                  ": not a file of NumPy, expected an .npz file with the array x, or a .npy file");
}

class ArrayInputs : public SampleStream {
 public:
  ArrayInputs(const std::string& path, const ArraySamples& like) : path_(path), like_(like.like()) {
    check_format(path);
    const ArrayFile file = read_array_file({.x = path}, ArrayLabels::kNone);
    all_ = array_samples(
        file,
        file.x.shape.size() == 3 && like.extents[2] == 1 && file.x.shape[2] == like.extents[1],
        /*integers_are_numbers=*/!like.are_tokens);
    check_scale(path, all_, like, "the model's training samples");
    if (all_.model_shape() != like.model_shape())
      throw DataError(path + ": x has samples of the shape " + extents_text(all_) + ", expected " +
                      extents_text(like) +
                      (like.are_tokens ? " (token ids)" : " (height, width, channels)"));
    count_ = file.x.shape[0];
  }

  void fill(std::int64_t most, Wanted wanted, SampleBlock& block) override {
    const std::size_t width = all_.width();
    for (; block.count() < most && next_ < count_; ++next_) {
      ArraySamples& samples = block.samples_like(like_);
      const auto first = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(next_) * width),
                 last = first + static_cast<std::ptrdiff_t>(width);
      if (wanted == Wanted::kSamples && all_.are_tokens)
        samples.ids.insert(samples.ids.end(), all_.ids.begin() + first, all_.ids.begin() + last);
      else if (wanted == Wanted::kSamples)
        samples.values.insert(samples.values.end(), all_.values.begin() + first,
                              all_.values.begin() + last);
      block.origins.push_back({path_, next_ + 1});
    }
  }

  std::vector<std::string> unknown() const override { return {}; }

 private:
  const std::string path_;
  const ArraySamples like_;
  ArraySamples all_;
  std::int64_t count_ = 0, next_ = 0;
};

}  // namespace

std::unique_ptr<SampleStream> open_array_samples(const std::string& path,
                                                 const ArraySamples& like) {
  return std::make_unique<ArrayInputs>(path, like);
}

}  // namespace io
