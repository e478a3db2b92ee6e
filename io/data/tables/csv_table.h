// Rows and fields of a CSV file. Format: RFC 4180 (2005).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace io {

// The position in its file at which a table with only some of the rows starts.
struct CsvStart {
  std::size_t rows = 0, lines = 0;  // before this table
  std::size_t columns = 0;          // in the previous rows; 0: the first row determines it
  bool short_header = false;        // see CsvTable::short_header()
  bool may_have_index = false;      // a single row may have an index that row 1 does not name
};

// A table of rows of equal length. The fields refer to the file's own bytes, which the table owns,
// so that fields are not copied.
class CsvTable {
 public:
  // Fields end with `separator` (a space: one or more blanks, as in aligned columns), rows with LF,
  // CRLF or CR; a field in double quotes may contain separators, line ends and doubled quotes. More
  // lenient than the RFC: a byte-order mark, empty lines, blanks around fields (outside quotes),
  // and Excel's first line "sep=;" are skipped. If row 1 has one field less than all other rows, of
  // which there are at least two (with start.may_have_index one) that end with a value, an empty
  // one is inserted before it, because R's write.table() omits it. `name` names the file in
  // messages. Throws DataError with row and line: rows of unequal length (both counts), an unclosed
  // quote, text beside quotes, a NUL byte, a field above 1 MiB, no row in the whole file.
  CsvTable(std::vector<std::uint8_t> bytes, std::string name, char separator = ',',
           const CsvStart& start = {});
  CsvTable(CsvTable&&) = default;  // the bytes do not move
  CsvTable(const CsvTable&) = delete;
  CsvTable& operator=(const CsvTable&) = delete;

  const std::string& name() const { return name_; }
  char separator() const { return separator_; }
  std::size_t rows() const { return lines_.size(); }
  std::size_t columns() const { return columns_; }
  std::string_view field(std::size_t row, std::size_t column) const {
    return fields_[row * columns_ + column];
  }
  bool short_header() const { return start_.short_header; }
  std::string place(std::size_t row) const;  // "F.csv, row 3 (line 4)", both from 1
  // The start of a table with the rows after these.
  CsvStart next() const {
    return {.rows = start_.rows + rows(),
            .lines = end_line_,
            .columns = columns_,
            .short_header = short_header()};
  }

 private:
  void check_row(std::size_t count);
  void extend_header();
  [[noreturn]] void refuse_row(std::size_t row, std::size_t count) const;

  std::vector<std::uint8_t> bytes_;  // quoted fields are unpacked in place
  std::string name_;
  char separator_;
  CsvStart start_;
  std::size_t columns_ = 0, end_line_ = 0;  // end_line_: number of lines up to the end
  bool long_row_ = false;                   // the second row has one field more than the first
  std::vector<std::string_view> fields_;
  std::vector<std::size_t> lines_;  // for each row, the line at which it starts
};

}  // namespace io
