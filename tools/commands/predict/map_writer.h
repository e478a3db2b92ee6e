// Writes the most likely class of each position of samples to an .npz file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tools {

class MapWriter {
 public:
  // `extents` are those of a sample's positions.
  MapWriter(std::string path, std::vector<std::int64_t> extents, std::int64_t classes);

  // Adds the classes of one sample, the first of equally likely ones as in an evaluation. Throws
  // io::DataError for logits that are not finite.
  void add(const std::string& input, std::int64_t sample, std::span<const double> logits);
  // Writes the array `classes` [samples, extents...], of uint8 for up to 256 classes, else of
  // int32. Returns a line for the user. Throws as io::save_npz().
  std::string finish() const;

 private:
  const std::string path_;
  const std::vector<std::int64_t> extents_;
  const std::int64_t classes_;
  std::vector<std::int32_t> found_;
};

}  // namespace tools
