// Replaces how cells are read, and keeps what was learned from them.
#include "io/data/readers/csv/csv_coding.h"

#include <utility>

#include "io/base/files/io_error.h"

namespace io {
namespace {

void set_missing(CsvCoding& coding, const std::string& option) {
  coding.missing = std::make_shared<const CsvMissing>(CsvMissing::of_option(option));
  for (CsvColumn& column : coding.columns) column.missing = coding.missing;
}

// kAuto leaves the signs of the training table: a file that is read row by row has no other rows
// that would decide.
void set_decimal(CsvCoding& coding, CsvDecimal decimal) {
  if (decimal == CsvDecimal::kAuto) return;
  const char sign = decimal == CsvDecimal::kComma ? ',' : '.';
  coding.label_decimal = sign;
  for (CsvColumn& column : coding.columns) column.decimal = sign;
}

void set_header(CsvCoding& coding, CsvHeader header, const std::string& source) {
  std::vector<std::string>& names = coding.selection.header;
  if (header == CsvHeader::kNo) names.clear();  // columns are found by position
  if (header == CsvHeader::kYes && names.empty())
    throw ConfigError("--csv-header is yes, but the model of " + source +
                      " was trained on a table without column names: remove row 1 of the file");
}

}  // namespace

std::shared_ptr<const CsvCoding> reading_with(std::shared_ptr<const CsvCoding> coding,
                                              const CsvOptions& options,
                                              const std::string& source) {
  const CsvOptions::Given& given = options.given;
  if (!coding || !given.any_of_cells()) return coding;
  auto changed = std::make_shared<CsvCoding>(*coding);
  if (given.missing) set_missing(*changed, options.missing);
  if (given.decimal) set_decimal(*changed, options.decimal);
  if (given.header) set_header(*changed, options.header, source);
  if (given.separator) {
    changed->separator = options.separator;
    changed->separator_is_fixed = true;
  }
  return changed;
}

std::shared_ptr<const SampleCoding> reading_with(std::shared_ptr<const SampleCoding> coding,
                                                 const CsvOptions& options) {
  if (!coding || !coding->table || !options.given.any_of_cells()) return coding;
  auto changed = std::make_shared<SampleCoding>(*coding);
  changed->table = reading_with(coding->table, options, coding->source);
  return changed;
}

}  // namespace io
