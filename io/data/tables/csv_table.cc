// Divides the bytes of a CSV file into rows and fields.
#include "io/data/tables/csv_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/tables/csv_separator.h"

namespace io {
namespace {

constexpr std::size_t kLongestField = std::size_t{1} << 20, kMaxColumns = 65536;

bool is_line_end(char c) { return c == '\n' || c == '\r'; }

// Reads the text sequentially; a field that it returns stays in place.
class Reader {
 public:
  Reader(char* text, std::size_t size, const std::string& name, char separator,
         std::size_t lines_before)
      : at_(text), end_(text + size), name_(name), separator_(separator), line_(lines_before + 1) {}

  bool at_end() const { return at_ == end_; }
  std::size_t line() const { return line_; }

  void skip_empty_lines() {
    while (true) {
      char* next = at_;
      while (next != end_ && is_blank(*next)) ++next;
      if (next != end_ && !is_line_end(*next)) return;
      at_ = next;
      if (at_end()) return;
      end_line();
    }
  }

  // Reads a field and its end; `more` is set if a separator ended it.
  std::string_view field(bool& more) {
    while (at_ != end_ && is_blank(*at_)) ++at_;
    const std::string_view found = at_ != end_ && *at_ == '"' ? quoted() : plain();
    while (separator_ == ' ' && at_ != end_ && is_blank(*at_)) ++at_;
    if (found.size() > kLongestField)
      fail("has a field of " + std::to_string(found.size()) + " bytes, expected at most 1048576");
    more = at_ != end_ && (separator_ == ' ' ? !is_line_end(*at_) : *at_ == separator_);
    if (!more && at_ != end_) end_line();
    if (more && separator_ != ' ') ++at_;
    return found;
  }

 private:
  // Blanks also separate fields if the separator is a space.
  bool ends_field(char c) const {
    return is_line_end(c) || (separator_ == ' ' ? is_blank(c) : c == separator_);
  }

  bool is_blank(char c) const { return c == ' ' || (c == '\t' && separator_ != '\t'); }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(name_ + ": line " + std::to_string(line_) + " " + what);
  }

  void end_line() {
    if (*at_ == '\r' && at_ + 1 != end_ && at_[1] == '\n') ++at_;
    ++at_;
    ++line_;
  }

  std::string_view plain() {
    char* const first = at_;
    while (at_ != end_ && !ends_field(*at_)) {
      if (*at_ == '"') fail("has a quote inside a field that is not quoted");
      ++at_;
    }
    char* last = at_;
    while (last != first && is_blank(last[-1])) --last;
    return {first, last};
  }

  std::string_view quoted() {
    char* const first = ++at_;
    char* last = first;  // the end of the unpacked part
    const std::size_t begun = line_;
    while (true) {
      auto* quote = static_cast<char*>(std::memchr(at_, '"', static_cast<std::size_t>(end_ - at_)));
      if (quote == nullptr) {
        line_ = begun;
        fail("has a quoted field that is never closed");
      }
      line_ += static_cast<std::size_t>(std::count(at_, quote, '\n'));
      const bool doubled = quote + 1 != end_ && quote[1] == '"';
      char* const stop = doubled ? quote + 1 : quote;
      std::memmove(last, at_, static_cast<std::size_t>(stop - at_));
      last += stop - at_;
      at_ = doubled ? quote + 2 : quote + 1;
      if (!doubled) break;
    }
    while (separator_ != ' ' && at_ != end_ && is_blank(*at_)) ++at_;
    if (at_ != end_ && !ends_field(*at_)) fail("has text after a closing quote");
    return {first, last};
  }

  char* at_;
  char* const end_;
  const std::string& name_;
  const char separator_;
  std::size_t line_;
};

void refuse_nul(std::string_view text, const std::string& name, std::size_t lines_before) {
  const std::size_t nul = text.find('\0');
  if (nul == std::string_view::npos) return;
  const auto line = 1 + lines_before +
                    static_cast<std::size_t>(std::count(
                        text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n'));
  throw DataError(name + ": line " + std::to_string(line) +
                  " has a NUL byte: this is not a CSV file in UTF-8 or ASCII");
}

}  // namespace

CsvTable::CsvTable(std::vector<std::uint8_t> bytes, std::string name, char separator,
                   const CsvStart& start)
    : bytes_(std::move(bytes)),
      name_(std::move(name)),
      separator_(separator),
      start_(start),
      columns_(start.columns) {
  char* text = reinterpret_cast<char*>(bytes_.data());
  std::size_t size = bytes_.size();
  refuse_nul({text, size}, name_, start_.lines);
  if (start_.lines == 0 && size >= 3 && std::memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
    text += 3;
    size -= 3;
  }
  std::size_t lines = start_.lines;
  if (const std::size_t named = lines == 0 ? separator_line({text, size}) : 0; named > 0) {
    text += named;
    size -= named;
    ++lines;
  }
  Reader reader(text, size, name_, separator_, lines);
  for (reader.skip_empty_lines(); !reader.at_end(); reader.skip_empty_lines()) {
    lines_.push_back(reader.line());
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      if (count == kMaxColumns)
        throw DataError(place(rows() - 1) + ": more than " + std::to_string(kMaxColumns) +
                        " fields");
      fields_.push_back(reader.field(more));
    }
    check_row(count);
  }
  if (long_row_ && start_.may_have_index) extend_header();
  if (long_row_) refuse_row(1, columns_ + 1);
  end_line_ = reader.line() - 1;
  if (start_.rows + rows() == 0)
    throw DataError(name_ + ": the file is empty, expected rows of fields");
}

void CsvTable::check_row(std::size_t count) {
  if (columns_ == 0) columns_ = count;
  if (start_.rows == 0 && rows() == 2 && count == columns_ + 1 && !fields_.back().empty()) {
    long_row_ = true;  // the third row decides
    return;
  }
  if (long_row_) {
    if (count != columns_ + 1 || fields_.back().empty()) refuse_row(1, columns_ + 1);
    extend_header();
  }
  if (count != columns_) refuse_row(rows() - 1, count);
}

void CsvTable::extend_header() {
  fields_.insert(fields_.begin(), std::string_view());
  ++columns_;
  start_.short_header = true;
  long_row_ = false;
}

void CsvTable::refuse_row(std::size_t row, std::size_t count) const {
  throw DataError(place(row) + ": found " + std::to_string(count) + " fields, expected " +
                  std::to_string(columns_ - (start_.short_header ? 1 : 0)) + " as in row 1" +
                  (separator_ == ',' ? "" : ", separated by " + separator_text(separator_)));
}

std::string CsvTable::place(std::size_t row) const {
  return name_ + ", row " + std::to_string(start_.rows + row + 1) + " (line " +
         std::to_string(lines_[row]) + ")";
}

}  // namespace io
