// Finds header, label and columns by name or number.
#include "io/data/readers/csv/csv_selection.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/real_number.h"
#include "io/base/text/text_parts.h"
#include "io/data/tables/csv_header.h"

namespace io {
namespace {

bool is_number(std::string_view field) {
  double value = 0;
  const auto [end, error] = base::real_from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size();
}

// Returns the first row's fields.
std::vector<std::string> first_fields(const CsvTable& table) {
  std::vector<std::string> names;
  for (std::size_t c = 0; c < table.columns(); ++c) names.emplace_back(table.field(0, c));
  return names;
}

HeaderDecision decide_header(const CsvTable& table, std::span<const ColumnScan> scans,
                             const CsvMissing& missing, const DatasetOptions& options) {
  if (options.csv.header != CsvHeader::kAuto)
    return {.header = options.csv.header == CsvHeader::kYes};
  if (table.short_header()) return {.header = true};
  // A number means a position: it is not evidence about row 1, which may contain that number.
  const std::vector<std::string> names = first_fields(table);
  const std::vector<std::string> wanted = label_names(options.csv.label_column, options.task);
  const bool named = std::ranges::any_of(wanted, [&](const std::string& label) {
    return !is_number(label) && std::ranges::find(names, label) != names.end();
  });
  return named ? HeaderDecision{.header = true} : find_header(table, scans, missing);
}

std::optional<std::size_t> find_index(const CsvTable& table, const CsvSelection& selection,
                                      const DatasetOptions& options) {
  const bool candidate = !selection.header.empty() && options.csv.columns.empty() &&
                         selection.label != 0 && is_unnamed(table.field(0, 0));
  const bool index = candidate && is_index(table, 0);
  const bool chosen = !selection.header.empty() && !options.csv.columns.empty();
  if (table.short_header() && !index && !chosen)
    throw DataError(table.place(1) + ": found " + std::to_string(table.columns()) +
                    " fields, expected " + std::to_string(table.columns() - 1) +
                    " as in row 1, or an index in the first column");
  return index ? std::optional<std::size_t>(0) : std::nullopt;
}

// Returns the column that has this name or, if none has, this number.
std::optional<std::size_t> column_of(const CsvTable& table, const std::vector<std::string>& header,
                                     const std::string& wanted) {
  const auto found = std::find(header.begin(), header.end(), wanted);
  if (found != header.end()) return static_cast<std::size_t>(found - header.begin());
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  if (error == std::errc() && end == wanted.data() + wanted.size() && number >= 1 &&
      number <= table.columns())
    return number - 1;
  return std::nullopt;
}

// Returns the names of columns that an option may still name: other ones would be rejected, because
// they are in use or several columns have them.
std::vector<std::string> free_names(const CsvTable& table, const std::vector<std::string>& header,
                                    const std::vector<bool>& used) {
  const std::vector<std::string> names = first_fields(table);
  std::vector<std::string> left;
  for (std::size_t c = 0; c < header.size(); ++c)
    if (!header[c].empty() && !used[c] && std::ranges::count(names, header[c]) <= 1)
      left.push_back(header[c]);
  return left;
}

// `what` is the thing to find: "label column" or "column"; `option` is the source of `wanted`.
// `used` are the columns not to propose in its place.
std::size_t find_column(const CsvTable& table, const std::vector<std::string>& header,
                        const std::string& wanted, const std::string& what, const char* option,
                        const std::vector<bool>& used) {
  if (const std::optional<std::size_t> found = column_of(table, header, wanted)) {
    const std::vector<std::string> names = first_fields(table);
    if (!header.empty() && std::ranges::count(names, wanted) > 1)
      throw ConfigError(table.name() + ": several columns are called '" + wanted + "'; give " +
                        option + " a number from 1");
    return *found;
  }
  throw ConfigError(table.name() + ": no " + what + " '" + wanted + "'" +
                    base::did_you_mean(wanted, free_names(table, header, used)) + " (" +
                    (header.empty() ? "the file has no header"
                                    : "the header names " + std::to_string(header.size())) +
                    "; a number from 1 to " + std::to_string(table.columns()) + " will do, too)" +
                    encoding_hint(header));
}

// Parses "A,B": returns for each column if it is in the list.
std::vector<bool> listed(const CsvTable& table, const CsvSelection& selection,
                         std::string_view list, const char* option) {
  std::vector<bool> found(table.columns(), false), used = found;
  for (const std::size_t label : selection.labels()) used[label] = true;
  for (const std::string& part : base::split_text(list, ',')) {
    const std::size_t column = find_column(
        table, selection.header, std::string(base::trimmed(part)), "column", option, used);
    found[column] = used[column] = true;
  }
  return found;
}

// Returns for each column if --ignore-columns names it; names of no column are reported later.
std::vector<bool> ignored_ones(const CsvTable& table, const std::vector<std::string>& header,
                               const CsvOptions& options) {
  std::vector<bool> found(table.columns(), false);
  if (!options.columns.empty() || options.ignored_columns.empty()) return found;
  for (const std::string& part : base::split_text(options.ignored_columns, ','))
    if (const auto column = column_of(table, header, std::string(base::trimmed(part))))
      found[*column] = true;
  return found;
}

void find_labels(const CsvTable& table, const DatasetOptions& options, CsvSelection& selection) {
  selection.label = table.columns() - 1;
  const std::vector<std::size_t> labels =
      label_columns(table, selection.header, label_names(options.csv.label_column, options.task),
                    ignored_ones(table, selection.header, options.csv));
  if (labels.empty()) return;
  selection.label = labels[0];
  selection.more_labels.assign(labels.begin() + 1, labels.end());
}

}  // namespace

std::vector<std::size_t> CsvSelection::labels() const {
  std::vector<std::size_t> all{label};
  all.insert(all.end(), more_labels.begin(), more_labels.end());
  return all;
}

std::string CsvSelection::title(std::size_t column) const {
  constexpr std::size_t kLongest = 40;
  if (header.empty()) return "column " + std::to_string(column + 1);
  std::string name = header[column];
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  if (name.size() <= kLongest) return name;
  std::size_t end = kLongest;  // not within a UTF-8 character
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;
  return name.substr(0, end) + "...";
}

std::vector<std::string> CsvSelection::label_titles() const {
  std::vector<std::string> titles;
  for (const std::size_t column : labels()) titles.push_back(title(column));
  return titles;
}

std::string CsvSelection::option_name(std::size_t column) const {
  const bool plain = !header.empty() && title(column) == header[column] &&
                     header[column].find_first_of(", '") == std::string::npos &&
                     std::ranges::find(header, header[column] + ".1") == header.end();
  return plain ? header[column] : std::to_string(column + 1);
}

std::string CsvSelection::place(std::size_t column) const {
  const std::string number = "column " + std::to_string(column + 1), name = title(column);
  return name == number ? number : number + " ('" + name + "')";
}

std::vector<std::string> label_names(const std::string& option, Task task) {
  if (option.empty()) return {};
  if (task != Task::kMultiLabel) return {option};
  std::vector<std::string> names;
  for (const std::string& part : base::split_text(option, ','))
    names.emplace_back(base::trimmed(part));
  return names;
}

std::vector<std::size_t> label_columns(const CsvTable& table,
                                       const std::vector<std::string>& header,
                                       const std::vector<std::string>& names,
                                       std::vector<bool> used) {
  std::vector<std::size_t> labels;
  CsvSelection named;
  named.header = header;
  for (const std::string& name : names) {
    const std::size_t label =
        find_column(table, header, name, "label column", "--label-column", used);
    if (std::ranges::find(labels, label) != labels.end())
      throw ConfigError(table.name() + ": --label-column names " + named.title(label) +
                        " twice, expected different columns");
    labels.push_back(label);
    used[label] = true;
  }
  return labels;
}

CsvSelection select_columns(const CsvTable& table, std::span<const ColumnScan> scans,
                            const CsvMissing& missing, const DatasetOptions& options) {
  CsvSelection selection;
  const HeaderDecision decision = decide_header(table, scans, missing, options);
  if (decision.header) selection.header = unique_names(first_fields(table));
  selection.doubtful = decision.doubtful;
  find_labels(table, options, selection);
  const std::vector<std::size_t> labels = selection.labels();
  const bool only = !options.csv.columns.empty();
  std::vector<bool> marked(table.columns(), false);
  if (only) marked = listed(table, selection, options.csv.columns, "--columns");
  if (!only && !options.csv.ignored_columns.empty())
    marked = listed(table, selection, options.csv.ignored_columns, "--ignore-columns");
  for (const std::size_t label : labels)
    if (!only && marked[label])
      throw ConfigError(table.name() + ": --ignore-columns names " + selection.title(label) +
                        ", which is the label; choose another one with --label-column");
  selection.index = find_index(table, selection, options);
  if (selection.index) marked[*selection.index] = !only;
  for (std::size_t c = 0; c < table.columns(); ++c)
    if (std::ranges::find(labels, c) == labels.end())
      (marked[c] == only ? selection.columns : selection.left_out).push_back(c);
  if (selection.columns.empty())
    throw ConfigError(table.name() + ": no column besides the label" +
                      (labels.size() > 1 ? "s" : "") +
                      (selection.index ? " and the index, column 1," : "") + " is left");
  return selection;
}

}  // namespace io
