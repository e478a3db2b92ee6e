// Collects the classes in memory.
#include "tools/commands/predict/map_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/interchange/numpy/npz.h"

namespace tools {
namespace {

template <class T>
void store(const std::vector<std::int32_t>& values, std::vector<std::byte>& data) {
  const std::vector<T> narrow(values.begin(), values.end());
  const auto bytes = std::as_bytes(std::span(narrow));
  data.assign(bytes.begin(), bytes.end());
}

}  // namespace

MapWriter::MapWriter(std::string path, std::vector<std::int64_t> extents, std::int64_t classes)
    : path_(std::move(path)), extents_(std::move(extents)), classes_(classes) {}

void MapWriter::add(const std::string& input, std::int64_t sample, std::span<const double> logits) {
  if (!std::ranges::all_of(logits, [](double logit) { return std::isfinite(logit); }))
    throw io::DataError(input + ": sample " + std::to_string(sample) +
                        ": the model's output is not finite (NaN or infinity)");
  const auto width = static_cast<std::size_t>(classes_);
  for (std::size_t first = 0; first < logits.size(); first += width) {
    const auto row = logits.subspan(first, width);
    found_.push_back(static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin()));
  }
}

std::string MapWriter::finish() const {
  std::int64_t positions = 1;
  for (const std::int64_t extent : extents_) positions *= extent;
  io::NamedArray array;
  array.name = "classes";
  array.type = classes_ <= 256 ? io::DType::kU8 : io::DType::kI32;
  array.shape = {std::ssize(found_) / positions};
  array.shape.insert(array.shape.end(), extents_.begin(), extents_.end());
  classes_ <= 256 ? store<std::uint8_t>(found_, array.data)
                  : store<std::int32_t>(found_, array.data);
  const std::int64_t samples = array.shape[0];
  io::save_npz({std::move(array)}, path_);
  return "Wrote the classes of " + std::to_string(positions) + " positions of each of " +
         std::to_string(samples) + " samples: " + base::escape_text(path_);
}

}  // namespace tools
