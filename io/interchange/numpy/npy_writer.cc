// NpyWriter: a header of fixed length is written last, in front.
#include "io/interchange/numpy/npy_writer.h"

#include <cstddef>
#include <limits>
#include <utility>

#include "io/interchange/numpy/npy_header.h"

namespace io {

NpyWriter::NpyWriter(const std::string& path, std::vector<std::int64_t> row_shape)
    : path_(path),
      row_shape_(std::move(row_shape)),
      file_(path, 0),
      header_bytes_(header(std::numeric_limits<std::int64_t>::max()).size()) {
  for (const std::int64_t extent : row_shape_) row_elements_ *= extent;
}

std::string NpyWriter::header(std::int64_t rows) const {
  std::vector<std::int64_t> shape{rows};
  shape.insert(shape.end(), row_shape_.begin(), row_shape_.end());
  return write_npy_header(DType::kF32, shape, path_);
}

void NpyWriter::add(std::span<const float> rows) {
  file_.write_at(header_bytes_ + elements_ * sizeof(float), std::as_bytes(rows));
  elements_ += rows.size();
}

void NpyWriter::finish() {
  std::string text = header(static_cast<std::int64_t>(elements_) / row_elements_);
  constexpr std::size_t kLength = 8;  // position of the two bytes with the length of the text after
                                      // them
  text.insert(text.size() - 1, header_bytes_ - text.size(), ' ');
  const std::size_t length = text.size() - kLength - 2;
  text[kLength] = static_cast<char>(length & 0xFF);
  text[kLength + 1] = static_cast<char>(length >> 8);
  file_.write_at(0, std::as_bytes(std::span(text)));
  file_.commit();
}

}  // namespace io
