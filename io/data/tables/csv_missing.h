// The texts that mean "no value" in the fields of a table.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace io {

// An empty field never has a value; other fields have none if they equal a marker, byte for byte.
// In columns of numbers also equal numbers have none, as with na_values of pandas: the marker -999
// covers -999.0, which pandas writes if a column of integers has missing values.
class CsvMissing {
 public:
  // The markers of --csv-missing auto: those of pandas' read_csv(), and - \N ? and NA, N/A, NaN and
  // NULL in any case.
  CsvMissing();
  explicit CsvMissing(std::vector<std::string> markers);

  // Parses --csv-missing: "auto"; "empty" for only the empty field; or "A,B": these, where "auto"
  // among them means all of the default ones. Throws ConfigError for an empty list.
  static CsvMissing of_option(const std::string& text);
  // The markers for checkpoints that do not store theirs: ? and NA, N/A, NaN and NULL in any case.
  static CsvMissing of_unstated();

  bool has(std::string_view field) const;
  // For a column of numbers with this decimal sign.
  bool has(std::string_view field, char decimal) const;
  const std::vector<std::string>& markers() const { return markers_; }  // ascending
  bool has_numbers() const { return !numbers_.empty(); }  // a marker reads as a finite number

 private:
  std::vector<std::string> markers_;
  std::array<bool, 256> first_{};  // for each byte: a marker starts with it
  std::size_t longest_ = 0;
  std::vector<double> numbers_;  // of the markers that read as finite numbers
};

}  // namespace io
