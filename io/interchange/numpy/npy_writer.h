// Writes an array with any number of rows to a .npy file row by row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/atomic_file.h"

namespace io {

class NpyWriter {
 public:
  // Writes float32 of [rows, row_shape...]. Throws as AtomicFile, from the constructor.
  NpyWriter(const std::string& path, std::vector<std::int64_t> row_shape);

  // Adds whole rows.
  void add(std::span<const float> rows);
  // The file appears under its name, with the rows that were added.
  void finish();

 private:
  std::string header(std::int64_t rows) const;

  const std::string path_;
  const std::vector<std::int64_t> row_shape_;
  std::int64_t row_elements_ = 1;
  AtomicFile file_;
  std::uint64_t elements_ = 0;
  std::size_t header_bytes_;
};

}  // namespace io
