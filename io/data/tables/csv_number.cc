// from_chars() reads plain numbers; all others are first converted to plain ones.
#include "io/data/tables/csv_number.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>

#include "io/base/text/real_number.h"
#include "io/base/text/text_parts.h"

namespace io {
namespace {

constexpr std::size_t kLongestNumber = 64;               // for a number that is not plain
constexpr std::string_view kMinusSign = "\xE2\x88\x92";  // U+2212, as typesetting programs write it

bool is_figure(char c) { return c >= '0' && c <= '9'; }

// For a number out of range, from_chars() does not report the direction: a negative exponent or
// many zeros mean that it is too small.
bool is_small(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos ||
         text.starts_with("0.") || text.starts_with('.');
}

CsvNumber plain_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = base::real_from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return {};
  const bool out = error == std::errc::result_out_of_range;
  if (out && is_small(text)) return {.content = CsvNumber::Content::kNumber};
  const bool fits = !out && std::abs(value) <= std::numeric_limits<float>::max();
  return {.content = fits ? CsvNumber::Content::kNumber : CsvNumber::Content::kTooLarge,
          .value = value};
}

// Returns the separator of groups of digits at the beginning of the text; "" if there is none.
std::string_view group_separator(std::string_view text, char decimal) {
  for (const std::string_view mark :
       {decimal == '.' ? "," : ".", "'", " ", "\xC2\xA0", "\xE2\x80\xAF", "\xE2\x80\x99"})
    if (text.starts_with(mark)) return mark;
  return {};
}

// Converts a number with groups or a decimal comma to the format of from_chars().
class Plain {
 public:
  Plain(std::string_view text, char decimal) : rest_(text), decimal_(decimal) {}

  // Returns false if it is not such a number.
  bool write() {
    if (!rest_.empty() && (rest_[0] == '-' || rest_[0] == '+')) take();
    if (!whole_part()) return false;
    if (rest_.empty() || rest_[0] != decimal_) return exponent();
    rest_.remove_prefix(1);
    text_[size_++] = '.';
    const std::size_t digits = take_digits();
    return (digits > 0 || whole_digits_ > 0) && exponent();
  }
  bool grouped() const { return grouped_; }
  std::string_view text() const { return {text_.data(), size_}; }

 private:
  void take() {
    text_[size_++] = rest_[0];
    rest_.remove_prefix(1);
  }

  std::size_t take_digits() {
    std::size_t count = 0;
    for (; !rest_.empty() && is_figure(rest_[0]); ++count) take();
    return count;
  }

  // Reads digits, or groups of three after a first one of at most three.
  bool whole_part() {
    const bool zero = !rest_.empty() && rest_[0] == '0';
    whole_digits_ = take_digits();
    const std::string_view mark = group_separator(rest_, decimal_);
    if (mark.empty()) return true;
    if (zero || whole_digits_ < 1 || whole_digits_ > 3) return false;
    grouped_ = true;
    while (rest_.starts_with(mark)) {
      rest_.remove_prefix(mark.size());
      if (take_digits() != 3) return false;
    }
    return true;
  }

  // Reads "e-3", or the end.
  bool exponent() {
    if (rest_.empty()) return whole_digits_ > 0 || size_ > 0;
    if (rest_[0] != 'e' && rest_[0] != 'E') return false;
    take();
    if (!rest_.empty() && (rest_[0] == '-' || rest_[0] == '+')) take();
    return take_digits() > 0 && rest_.empty();
  }

  std::string_view rest_;
  const char decimal_;
  std::array<char, kLongestNumber> text_{};  // not longer than the field
  std::size_t size_ = 0, whole_digits_ = 0;
  bool grouped_ = false;
};

}  // namespace

std::optional<std::int64_t> whole_number(std::string_view field) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

std::optional<double> number_called(std::string_view name) {
  for (const char decimal : {'.', ','}) {
    const CsvNumber number = read_number(name, decimal);
    if (number.content != CsvNumber::Content::kNumber) continue;
    return number.grouped ? std::nullopt : std::optional(number.value);
  }
  return std::nullopt;
}

CsvNumber read_number(std::string_view field, char decimal) {
  if (field.starts_with(' ') || field.ends_with(' ')) field = base::trimmed(field);  // in quotes
  if (field.starts_with(kMinusSign)) {
    field.remove_prefix(kMinusSign.size());
    const bool figure =
        !field.empty() && field[0] != '-' && field[0] != '+' && !field.starts_with(kMinusSign);
    CsvNumber number = figure ? read_number(field, decimal) : CsvNumber{};
    number.value = -number.value;
    return number;
  }
  if (field.empty()) return {};
  if (decimal == '.' || field.find('.') == std::string_view::npos) {
    const CsvNumber number = plain_number(field);
    if (number.content != CsvNumber::Content::kText) return number;
  }
  const bool may_be = is_figure(field[0]) || field[0] == '-' || field[0] == '+' || field[0] == ',';
  if (!may_be || field.size() > kLongestNumber) return {};
  Plain plain(field, decimal);
  if (!plain.write()) return {};
  CsvNumber number = plain_number(plain.text());
  number.grouped = plain.grouped();
  return number;
}

}  // namespace io
