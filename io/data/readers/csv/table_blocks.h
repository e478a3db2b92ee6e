// Reads a CSV file, or a pipe, as tables of whole rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/readers/csv/csv_coding.h"
#include "io/data/tables/csv_table.h"
#include "io/data/tables/csv_text.h"

namespace io {

class TableBlocks {
 public:
  // `coding`: of the table that the model was trained on, which must outlive this object.
  // `with_answers`: the file has more columns than the features', and must not be a pipe.
  TableBlocks(const std::string& path, const CsvCoding& coding, bool with_answers);

  // Returns null at the end. Throws for an invalid row after the rows before it have been returned.
  std::unique_ptr<CsvTable> next();

 private:
  bool may_start() const;
  bool is_separator_fixed() const;
  std::string_view text() const;
  void scan(std::size_t from);
  std::unique_ptr<CsvTable> table_of(std::size_t end, char separator) const;
  std::unique_ptr<CsvTable> valid_rows(std::size_t end);
  char separator_of(std::size_t end) const;
  bool is_one_column(std::size_t end, char separator) const;

  CsvText file_;
  const CsvCoding& coding_;
  const bool with_answers_;
  char separator_ = ',';
  std::vector<std::uint8_t> text_;
  std::vector<std::size_t> row_ends_;  // offsets in text_
  std::exception_ptr failure_;         // reports the row after those that have been returned
  std::size_t lines_ = 0;              // those that are not empty
  bool quoted_ = false, blank_ = true, at_end_ = false, started_ = false;
  CsvStart start_;
};

}  // namespace io
