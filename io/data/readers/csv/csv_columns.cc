// Determines types, categories and statistics of columns.
#include "io/data/readers/csv/csv_columns.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/tables/csv_number.h"

namespace io {
namespace {

using Content = CsvNumber::Content;

// Returns a number, or nothing for a missing value and for any other text.
std::optional<double> read_value(std::string_view field, char decimal, const CsvMissing& missing) {
  if (field.empty() || (missing.has_numbers() && missing.has(field, decimal))) return std::nullopt;
  const CsvNumber number = read_number(field, decimal);
  return number.content == Content::kNumber ? std::optional(number.value) : std::nullopt;
}

void check_range(const CsvTable& table, std::size_t index, const ColumnScan& scan) {
  if (!scan.is_number() || scan.first_large == kNoRow) return;
  throw DataError(table.place(scan.first_large) + ": '" +
                  std::string(table.field(scan.first_large, index)) + "' in column " +
                  std::to_string(index + 1) +
                  ", which has numbers: expected one that float32 can hold");
}

std::optional<double> number_of(const CsvColumn& column, std::string_view field) {
  if (!column.text) return read_value(field, column.decimal, *column.missing);
  if (column.missing->has(field)) return std::nullopt;
  const auto found = std::lower_bound(column.categories.begin(), column.categories.end(), field);
  if (found == column.categories.end() || *found != field) return std::nullopt;
  return static_cast<double>(found - column.categories.begin());
}

// Returns the digits of a whole number of any length, without leading zeros; "" for other fields.
std::string_view digits_of(std::string_view field) {
  if (field.starts_with('-') || field.starts_with('+')) field.remove_prefix(1);
  if (field.find_first_not_of("0123456789") != std::string_view::npos) return {};
  return field.substr(std::min(field.find_first_not_of('0'), field.size()));
}

// Returns true if numbers that count as equal differ: as doubles, or as whole numbers that the same
// double stands for, e.g. identifiers of 64 bits.
bool differ_beyond(const CsvColumn& column, const CsvTable& table,
                   std::span<const std::size_t> training, std::span<const double> numbers) {
  if (std::ranges::adjacent_find(numbers, std::not_equal_to<>()) != numbers.end()) return true;
  std::vector<std::string_view> fields;
  for (const std::size_t row : training) {
    const std::string_view field = table.field(row, column.index), digits = digits_of(field);
    if (!digits.empty() && number_of(column, field)) fields.push_back(digits);
  }
  return std::ranges::adjacent_find(fields, std::not_equal_to<>()) != fields.end();
}

void measure(CsvColumn& column, const CsvTable& table, std::span<const std::size_t> training) {
  std::vector<double> numbers;
  for (const std::size_t row : training) {
    if (const auto number = number_of(column, table.field(row, column.index)))
      numbers.push_back(*number);
  }
  column.constant = true;
  if (numbers.empty()) return;
  const Spread spread = spread_of(numbers);
  column.mean = spread.mean;
  if (spread.constant) {
    column.too_close = !column.text && differ_beyond(column, table, training, numbers);
    return;
  }
  column.constant = false;
  column.deviation = spread.deviation;
}

std::vector<std::string_view> different(std::vector<std::string_view> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Computes relative to `origin`, so that numbers keep their digits.
Spread spread_around(std::span<const double> numbers, double origin) {
  double sum = 0, squares = 0;
  for (const double number : numbers) sum += number - origin;
  const auto count = static_cast<double>(numbers.size());
  const double mean = sum / count;
  for (const double number : numbers)
    squares += (number - origin - mean) * (number - origin - mean);
  return {.mean = origin + mean, .deviation = std::sqrt(squares / count)};
}

}  // namespace

Spread spread_of(std::span<const double> numbers) {
  if (numbers.empty()) return {.constant = true};
  Spread spread = spread_around(numbers, 0);
  // Far from 0 the sums are rounded, although e.g. 1e15 - 100 and 1e15 + 100 differ.
  if (!(spread.deviation > 1e-12 * std::abs(spread.mean)))
    spread = spread_around(numbers, numbers.front());
  constexpr double kRounding = 1e-15;
  spread.constant = !(spread.deviation > kRounding * std::abs(spread.mean));
  return spread;
}

bool CsvColumn::is_missing(std::string_view field) const {
  return text ? missing->has(field) : missing->has(field, decimal);
}

bool CsvColumn::accepts(std::string_view field) const {
  if (text || read_value(field, decimal, *missing) || is_missing(field)) return true;
  return std::ranges::find(odd, field) != odd.end();
}

CsvColumn::Cell CsvColumn::cell_of(std::string_view field) const {
  if (text) {
    if (missing->has(field)) return Cell::kMissing;
    return std::ranges::binary_search(categories, field) ? Cell::kValue : Cell::kUnknown;
  }
  if (field.empty() || (missing->has_numbers() && is_missing(field))) return Cell::kMissing;
  const CsvNumber number = read_number(field, decimal);
  if (number.content == Content::kNumber && constant) {
    constexpr double kRounding = 1e-12;
    const bool same = std::abs(number.value - mean) <= kRounding * std::abs(mean);
    return same ? Cell::kValue : Cell::kUnknown;
  }
  if (number.content == Content::kNumber) return number.grouped ? Cell::kGrouped : Cell::kValue;
  return accepts(field) ? Cell::kMissing : Cell::kUnknown;
}

bool CsvColumn::encode(std::string_view field, float* out) const {
  if (!one_hot()) {
    const auto number = number_of(*this, field);
    *out = number && !constant ? static_cast<float>((*number - mean) / deviation) : 0.0f;
    return number || accepts(field);
  }
  const bool none = missing->has(field);
  for (const std::string_view category : categories)
    *out++ = !none && category == field ? 1.0f : 0.0f;
  return true;
}

CsvColumn learn_column(const CsvTable& table, std::size_t index, const ColumnScan& scan,
                       std::shared_ptr<const CsvMissing> missing,
                       std::span<const std::size_t> training) {
  check_range(table, index, scan);
  CsvColumn column;
  column.index = index;
  column.text = !scan.is_number();
  column.decimal = scan.decimal;
  column.missing = std::move(missing);
  if (!column.text) column.odd.assign(scan.odd.begin(), scan.odd.end());
  if (column.text) {
    std::vector<std::string_view> values;
    for (const std::size_t row : training) {
      if (!column.missing->has(table.field(row, index))) values.push_back(table.field(row, index));
    }
    const std::vector<std::string_view> found = different(std::move(values));
    column.categories.assign(found.begin(), found.end());
  }
  if (!column.one_hot()) measure(column, table, training);
  return column;
}

std::vector<double> read_targets(const CsvTable& table, std::size_t index, std::size_t first,
                                 char decimal, const CsvMissing& missing,
                                 const std::string& title) {
  std::vector<double> targets;
  for (std::size_t row = first; row < table.rows(); ++row) {
    const auto number = read_value(table.field(row, index), decimal, missing);
    if (!number)
      throw DataError(table.place(row) + ": found '" +
                      std::string(table.field(row, index).substr(0, 40)) + "' in " + title +
                      ", the target, expected a number that float32 can hold");
    targets.push_back(*number);
  }
  return targets;
}

float read_flag(const CsvTable& table, std::size_t index, std::size_t row,
                const CsvMissing& missing, const std::string& title) {
  const std::string_view field = table.field(row, index);
  if (missing.has(field, '.')) return std::numeric_limits<float>::quiet_NaN();
  const auto number = read_value(field, '.', missing);
  if (number && (*number == 0 || *number == 1)) return static_cast<float>(*number);
  throw DataError(table.place(row) + ": found '" + std::string(field.substr(0, 40)) +
                  "' in column " + std::to_string(index + 1) + " ('" + title +
                  "'), a label, expected 0 or 1, or an empty field if it is unknown");
}

CsvLabels read_labels(const CsvTable& table, std::size_t index, std::size_t first,
                      const CsvMissing& missing) {
  std::vector<std::string_view> values;
  for (std::size_t row = first; row < table.rows(); ++row) {
    values.push_back(table.field(row, index));
    if (!missing.has(values.back())) continue;
    const std::string found(values.back());
    throw DataError(table.place(row) + ": no label in column " + std::to_string(index + 1) +
                    ": found '" + found + "'" +
                    (found.empty() ? ""
                                   : "; if that is a class, name other missing values with "
                                     "--csv-missing, or none with --csv-missing empty"));
  }
  CsvLabels labels = classes_of(values);
  const std::size_t classes = labels.names.size();
  if (classes < 2 || (classes > 20 && classes > values.size() / 2)) {
    throw DataError(table.name() + ": the label column " + std::to_string(index + 1) + " has " +
                    std::to_string(classes) + " different values in " +
                    std::to_string(values.size()) +
                    " rows, expected classes: at least 2, and several rows of each; choose another "
                    "with --label-column, or predict numbers with --task regression");
  }
  return labels;
}

CsvLabels classes_of(std::span<const std::string_view> values) {
  std::vector<std::string_view> classes = different({values.begin(), values.end()});
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
