// The texts that stand for "no value" in the fields of a table.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace io {

// An empty field always has no value; other fields if they are one of the markers, byte for byte.
class CsvMissing {
 public:
  // The markers that --csv-missing auto stands for: those of pandas' read_csv(), and - \N ? and
  // NA, N/A, NaN and NULL in any case.
  CsvMissing();
  explicit CsvMissing(std::vector<std::string> markers);

  // As --csv-missing has them: "auto"; "empty" for none but the empty field; or "A,B": these, where
  // "auto" among them stands for all of the default ones. Throws ConfigError for an empty list.
  static CsvMissing of_option(const std::string& text);
  // The markers of snapshots that do not state theirs: ? and NA, N/A, NaN and NULL in any case.
  static CsvMissing of_unstated();

  bool has(std::string_view field) const;
  const std::vector<std::string>& markers() const { return markers_; }  // ascending
  bool has_numbers() const { return has_numbers_; }  // whether a marker reads as a finite number

 private:
  std::vector<std::string> markers_;
  std::array<bool, 256> first_{};  // by byte: whether a marker begins with it
  std::size_t longest_ = 0;
  bool has_numbers_ = false;
};

}  // namespace io
