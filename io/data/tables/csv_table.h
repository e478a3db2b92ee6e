// Rows and fields of a CSV file. Format: RFC 4180 (2005).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace io {

// Where in its file a table begins that has only some of the rows.
struct CsvStart {
  std::size_t rows = 0, lines = 0;  // before it
  std::size_t columns = 0;          // of the rows before; 0: the first row says how many
  bool short_header = false;        // as CsvTable::short_header() says
};

// A table of equally long rows. The fields lie in the file's own bytes, which the table keeps: no
// copy per field.
class CsvTable {
 public:
  // Fields end with `separator` (a space: with blanks, one or more, as in aligned columns), rows
  // with LF, CRLF or CR; a field in double quotes may hold separators, line ends and doubled
  // quotes. More lenient than the RFC: a byte-order mark, empty lines, blanks around fields
  // (outside quotes), and Excel's first line "sep=;" are skipped. If row 1 has one field less than
  // all other rows, which are two or more and end with a value, an empty one is put before it, as
  // R's write.table() leaves it out. `name` stands for the file in messages. Throws DataError with
  // row and line: rows of unequal length (both counts), an open quote, text beside quotes, a NUL
  // byte, a field above 1 MiB, no row in the whole file.
  CsvTable(std::vector<std::uint8_t> bytes, std::string name, char separator = ',',
           const CsvStart& start = {});
  CsvTable(CsvTable&&) = default;  // the bytes stay where they are
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
  // Of the table that has the rows after these.
  CsvStart next() const { return {start_.rows + rows(), end_line_, columns_, short_header()}; }

 private:
  void check_row(std::size_t count);
  [[noreturn]] void refuse_row(std::size_t row, std::size_t count) const;

  std::vector<std::uint8_t> bytes_;  // quoted fields are unpacked in place
  std::string name_;
  char separator_;
  CsvStart start_;
  std::size_t columns_ = 0, end_line_ = 0;  // end_line_: lines up to the end
  bool long_row_ = false;                   // the second row has one field more than the first
  std::vector<std::string_view> fields_;
  std::vector<std::size_t> lines_;  // by row, where it begins
};

}  // namespace io
