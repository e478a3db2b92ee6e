// Reads a table or another text of any encoding as UTF-8 or another superset of ASCII.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/data/files/data_file.h"

namespace io {

// A file that starts with the byte-order mark of UTF-16 (e.g. Excel's "Unicode text") is converted;
// all others are passed on unchanged, except for UTF-8's mark, so that names in other encodings
// keep their bytes.
class CsvText {
 public:
  // Throws as DataFile does.
  explicit CsvText(const std::string& path, Pipes pipes = Pipes::kReject) : file_(path, pipes) {}

  const std::string& path() const { return file_.path(); }
  // Appends the conversion of the next `bytes` of the file; false at its end. Throws DataError for
  // damaged UTF-16 and for files of other formats (file_format.h), and the exceptions of DataFile.
  bool append(std::size_t bytes, std::vector<std::uint8_t>& text);
  // Does the same with the bytes that one read gives, e.g. with those that have been written to a
  // pipe so far.
  bool append_some(std::size_t bytes, std::vector<std::uint8_t>& text);
  bool is_pipe() const { return file_.file_bytes() == 0; }  // or an empty file
  // Returns the rest of the file.
  std::vector<std::uint8_t> rest();

 private:
  void find_encoding(std::vector<std::uint8_t>& bytes);
  void convert(const std::vector<std::uint8_t>& bytes, bool last, std::vector<std::uint8_t>& text);
  void add_unit(std::uint32_t unit, std::vector<std::uint8_t>& text);

  enum class Encoding : std::uint8_t { kUnknown, kBytes, kLittle, kBig };
  DataFile file_;
  Encoding encoding_ = Encoding::kUnknown;
  bool has_half_ = false;  // the other byte of a unit comes next
  std::uint8_t half_ = 0;
  std::uint32_t high_ = 0;  // a high surrogate whose low one comes next; 0: none
};

}  // namespace io
