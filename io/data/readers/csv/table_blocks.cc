// Chooses the separator in the first block.
#include "io/data/readers/csv/table_blocks.h"

#include <algorithm>
#include <string_view>

#include "io/base/files/io_error.h"
#include "io/data/tables/csv_header.h"
#include "io/data/tables/csv_separator.h"

namespace io {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20, kLongestRow = std::size_t{64} << 20;
constexpr std::size_t kRowsOfSeparator = 50;  // those that csv_separator() uses
constexpr std::size_t kRowsOfHeader = 3;      // those that decide about a short header

// The header of one row with an index is too short, as R's write.table() writes it. That is
// expected of a model whose own table had an index without a name.
CsvStart first_start(const CsvCoding& coding) {
  const std::vector<std::string>& header = coding.selection.header;
  return {.may_have_index = !header.empty() && header[0] == unique_names({""})[0]};
}

// Returns the separator with which a file may be the coding's only column, whose cells may contain
// other separators; 0 if there is none. A column with decimal commas is not separated by commas,
// unless its cells are quoted.
char separator_beside_one_column(const CsvCoding& coding) {
  const CsvSelection& selection = coding.selection;
  const bool named = !selection.header.empty();
  if (coding.columns.size() != 1 ||
      (!named && coding.table_columns != 1 + selection.labels().size()))
    return 0;
  const char known =
      coding.separator == "auto" ? coding.found_separator : csv_separator(coding.separator, "");
  if (known != 0 && known != ',') return known;
  return named && coding.columns[0].decimal == ',' ? ';' : '\0';
}

}  // namespace

TableBlocks::TableBlocks(const std::string& path, const CsvCoding& coding, bool with_answers)
    : file_(path, with_answers ? Pipes::kReject : Pipes::kRead),
      coding_(coding),
      with_answers_(with_answers),
      start_(first_start(coding)) {}

std::unique_ptr<CsvTable> TableBlocks::next() {
  if (failure_) std::rethrow_exception(failure_);
  std::size_t end = 0;
  while (!at_end_ && (end == 0 || !may_start())) {
    const std::size_t before = text_.size();
    if (before > kLongestRow)
      throw DataError(file_.path() + ": line " + std::to_string(start_.lines + 1) +
                      " begins a row of more than 64 MiB: is a quote never closed?");
    at_end_ = !(file_.is_pipe() ? file_.append_some(kBlock, text_) : file_.append(kBlock, text_));
    scan(before);
    end = row_ends_.empty() ? 0 : row_ends_.back();
  }
  if (at_end_) end = text_.size();
  if (end == 0 && started_) return nullptr;
  if (!started_) separator_ = separator_of(end);
  started_ = true;
  std::unique_ptr<CsvTable> table = valid_rows(end);
  text_.erase(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(end));
  row_ends_.clear();  // the rest contains no end of a row
  start_ = table->next();
  return table;
}

// The first rows decide about the separator and a short header, of a pipe as of a file.
bool TableBlocks::may_start() const {
  if (started_ || text_.size() >= kBlock) return true;
  const std::size_t rows = is_separator_fixed() ? kRowsOfHeader : kRowsOfSeparator;
  return lines_ >= rows + (names_separator(text()) ? 1 : 0);
}

bool TableBlocks::is_separator_fixed() const {
  return coding_.separator_is_fixed && coding_.separator != "auto";
}

std::string_view TableBlocks::text() const {
  return {reinterpret_cast<const char*>(text_.data()), text_.size()};
}

// Finds the ends of rows. A file whose rows end with CR alone is read as one block.
void TableBlocks::scan(std::size_t from) {
  for (std::size_t i = from; i < text_.size(); ++i) {
    if (text_[i] == '"') quoted_ = !quoted_;
    const bool is_end = !quoted_ && text_[i] == '\n';
    if (is_end) row_ends_.push_back(i + 1);
    if (is_end && !blank_) ++lines_;
    blank_ = is_end || (blank_ && std::string_view(" \t\r").find(static_cast<char>(text_[i])) !=
                                      std::string_view::npos);
  }
}

std::unique_ptr<CsvTable> TableBlocks::table_of(std::size_t end, char separator) const {
  return std::make_unique<CsvTable>(
      std::vector<std::uint8_t>(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(end)),
      file_.path(), separator, start_);
}

// Returns the rows up to `end`, or those before the first invalid one, which is reported later.
// The first three rows decide about a short header: an error in them is reported at once.
std::unique_ptr<CsvTable> TableBlocks::valid_rows(std::size_t end) {
  try {
    return table_of(end, separator_);
  } catch (const DataError&) {
    failure_ = std::current_exception();
  }
  const auto is_valid = [&](std::size_t row_end) {
    try {
      table_of(row_end, separator_);
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  const std::size_t fewest = start_.rows == 0 ? kRowsOfHeader : 1;
  if (row_ends_.size() < fewest || !is_valid(row_ends_[fewest - 1]))
    std::rethrow_exception(failure_);
  const auto first = row_ends_.begin() + static_cast<std::ptrdiff_t>(fewest);
  const auto invalid = std::partition_point(first, row_ends_.end(), is_valid);
  return table_of(*(invalid - 1), separator_);
}

// `end`: that of the whole rows.
char TableBlocks::separator_of(std::size_t end) const {
  if (is_separator_fixed()) return csv_separator(coding_.separator, text());
  const char beside = with_answers_ ? '\0' : separator_beside_one_column(coding_);
  if (beside != 0 && !names_separator(text()) && is_one_column(end, beside)) return beside;
  return separator_after(coding_.separator, text());
}

// Returns true if most rows, as a whole, are cells of the coding's only column. R's short header
// counts as its name.
bool TableBlocks::is_one_column(std::size_t end, char separator) const {
  std::unique_ptr<CsvTable> table;
  try {
    table = table_of(end, separator);
  } catch (const DataError&) {
    return false;
  }
  const CsvColumn& column = coding_.columns[0];
  const std::vector<std::string>& header = coding_.selection.header;
  const std::size_t at = table->short_header() ? 1 : 0, first = header.empty() ? 0 : 1;
  if (table->columns() != at + 1 || (first > 0 && table->field(0, at) != header[column.index]))
    return false;
  std::size_t cells = 0;
  for (std::size_t row = first; row < table->rows(); ++row) {
    const std::string_view field = table->field(row, at);
    cells += column.text ? column.cell_of(field) == CsvColumn::Cell::kValue : column.accepts(field);
  }
  return 2 * cells > table->rows() - first;
}

}  // namespace io
