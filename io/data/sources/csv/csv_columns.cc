// Types, categories and statistics of columns.
#include "io/data/sources/csv/csv_columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "io/base/io_error.h"

namespace io {
namespace {

enum class Content { kMissing, kNumber, kTooLarge, kText };

struct Value {
  Content content;
  double number = 0;
};

Value read_value(std::string_view field) {
  if (is_missing(field)) return {Content::kMissing};
  const std::string_view digits =
      field.substr(field.size() > 1 && field[0] == '+' && field[1] != '-' ? 1 : 0);
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument)
    return {Content::kText};
  const bool too_small = error == std::errc::result_out_of_range && std::abs(number) < 1;
  if (too_small) return {Content::kNumber, 0};
  const bool fits =
      error == std::errc() &&
      std::abs(number) <= std::numeric_limits<float>::max();  // false for infinity, too
  return fits ? Value{Content::kNumber, number} : Value{Content::kTooLarge};
}

bool is_text_column(const CsvTable& table, std::size_t index, std::size_t first) {
  std::optional<std::size_t> too_large;
  for (std::size_t row = first; row < table.rows(); ++row) {
    const Content content = read_value(table.field(row, index)).content;
    if (content == Content::kText) return true;
    if (content == Content::kTooLarge && !too_large) too_large = row;
  }
  if (too_large) {
    throw DataError(table.place(*too_large) + ": '" + std::string(table.field(*too_large, index)) +
                    "' in column " + std::to_string(index + 1) +
                    ", which has numbers: expected one that float32 can hold");
  }
  return false;
}

std::optional<double> number_of(const CsvColumn& column, std::string_view field) {
  const Value value = read_value(field);
  if (value.content == Content::kMissing) return std::nullopt;
  if (!column.text) return value.number;
  const auto found = std::lower_bound(column.categories.begin(), column.categories.end(), field);
  if (found == column.categories.end() || *found != field) return std::nullopt;
  return static_cast<double>(found - column.categories.begin());
}

void measure(CsvColumn& column, const CsvTable& table, std::span<const std::size_t> training) {
  std::vector<double> numbers;
  for (const std::size_t row : training) {
    if (const auto number = number_of(column, table.field(row, column.index)))
      numbers.push_back(*number);
  }
  column.constant = true;
  if (numbers.empty()) return;
  double sum = 0, squares = 0;
  for (const double number : numbers) sum += number;
  column.mean = sum / static_cast<double>(numbers.size());
  for (const double number : numbers) squares += (number - column.mean) * (number - column.mean);
  const double deviation = std::sqrt(squares / static_cast<double>(numbers.size()));
  if (deviation <= 1e-12 * std::abs(column.mean)) return;
  column.constant = false;
  column.deviation = deviation;
}

std::vector<std::string_view> different(std::vector<std::string_view> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

}  // namespace

bool is_missing(std::string_view field) {
  if (field.empty() || field == "?") return true;
  if (field.size() > 4) return false;
  std::string lower(field);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  return lower == "na" || lower == "n/a" || lower == "nan" || lower == "null";
}

bool CsvColumn::accepts(std::string_view field) const {
  if (text) return true;
  const Content content = read_value(field).content;
  return content == Content::kNumber || content == Content::kMissing;
}

void CsvColumn::encode(std::string_view field, float* out) const {
  if (!one_hot()) {
    const auto number = number_of(*this, field);
    *out = number ? static_cast<float>((*number - mean) / deviation) : 0.0f;
    return;
  }
  const bool missing = is_missing(field);
  for (const std::string_view category : categories)
    *out++ = !missing && category == field ? 1.0f : 0.0f;
}

CsvColumn learn_column(const CsvTable& table, std::size_t index, std::size_t first,
                       std::span<const std::size_t> training) {
  CsvColumn column;
  column.index = index;
  column.text = is_text_column(table, index, first);
  if (column.text) {
    std::vector<std::string_view> values;
    for (const std::size_t row : training) {
      if (!is_missing(table.field(row, index))) values.push_back(table.field(row, index));
    }
    const std::vector<std::string_view> found = different(std::move(values));
    column.categories.assign(found.begin(), found.end());
  }
  if (!column.one_hot()) measure(column, table, training);
  return column;
}

std::vector<double> read_targets(const CsvTable& table, std::size_t index, std::size_t first,
                                 const std::string& title) {
  std::vector<double> targets;
  for (std::size_t row = first; row < table.rows(); ++row) {
    const Value value = read_value(table.field(row, index));
    if (value.content != Content::kNumber)
      throw DataError(table.place(row) + ": found '" +
                      std::string(table.field(row, index).substr(0, 40)) + "' in " + title +
                      ", the target, expected a number that float32 can hold");
    targets.push_back(value.number);
  }
  return targets;
}

CsvLabels read_labels(const CsvTable& table, std::size_t index, std::size_t first) {
  std::vector<std::string_view> values;
  for (std::size_t row = first; row < table.rows(); ++row) {
    values.push_back(table.field(row, index));
    if (is_missing(values.back()))
      throw DataError(table.place(row) + ": no label in column " + std::to_string(index + 1) +
                      ": found '" + std::string(values.back()) + "'");
  }
  std::vector<std::string_view> classes = different(values);
  if (classes.size() < 2 || (classes.size() > 20 && classes.size() > values.size() / 2)) {
    throw DataError(table.name() + ": the label column " + std::to_string(index + 1) + " has " +
                    std::to_string(classes.size()) + " different values in " +
                    std::to_string(values.size()) +
                    " rows, expected classes: at least 2, and several rows of each; choose another "
                    "with --label-column, or predict numbers with --task regression");
  }
  const bool whole = std::all_of(classes.begin(), classes.end(),
                                 [](std::string_view c) { return whole_number(c).has_value(); });
  const auto before = [whole](std::string_view a, std::string_view b) {
    return whole && *whole_number(a) != *whole_number(b) ? *whole_number(a) < *whole_number(b)
                                                         : a < b;
  };
  std::sort(classes.begin(), classes.end(), before);
  CsvLabels labels;
  labels.names.assign(classes.begin(), classes.end());
  for (const std::string_view value : values) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), value, before);
    labels.ids.push_back(static_cast<std::int32_t>(found - classes.begin()));
  }
  return labels;
}

}  // namespace io
