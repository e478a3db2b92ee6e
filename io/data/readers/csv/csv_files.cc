// Converts a table of fields to features and labels, and splits it into training and test parts.
#include "io/data/readers/csv/csv_files.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/data/files/data_file.h"
#include "io/data/files/data_folder.h"
#include "io/data/readers/csv/coded_table.h"
#include "io/data/readers/csv/csv_answers.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/readers/csv/csv_columns.h"
#include "io/data/readers/csv/csv_report.h"
#include "io/data/readers/csv/csv_selection.h"
#include "io/data/tables/csv_number.h"
#include "io/data/tables/csv_scan.h"
#include "io/data/tables/csv_separator.h"
#include "io/data/tables/csv_table.h"
#include "io/data/tables/csv_text.h"

namespace io {
namespace {

std::string only_csv_file(const std::string& directory) {
  std::error_code failure;
  if (std::filesystem::is_regular_file(directory, failure)) return directory;
  LeftOut ignored;  // one file is read, and the options name it
  const std::vector<std::string> found = pick_files(
      directory,
      [](const std::string& name) { return name.ends_with(".csv") || name.ends_with(".csv.gz"); },
      ignored);
  if (found.size() == 1) return found[0];
  const std::string hint = "; name one with --annotations FILE.csv";
  if (found.empty()) throw MissingFileError("no *.csv in " + directory + hint);
  throw ConfigError("found " + std::to_string(found.size()) + " files *.csv in " + directory +
                    ", expected one" + hint);
}

// Returns the beginning of a file that is not divided into columns, for a message.
std::string beginning(std::string_view field) {
  constexpr std::size_t kShown = 60;
  std::string text(field.substr(0, kShown));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = ' ';
  return "'" + text + (field.size() > kShown ? "...'" : "'");
}

// Adds a line to `warnings` if other separators would divide the rows as well.
CsvTable read_table(const std::string& path, const std::string& wanted,
                    std::vector<std::string>& warnings) {
  std::vector<std::uint8_t> bytes = CsvText(path).rest();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const char separator = csv_separator(wanted, text);
  if (const std::string others = also_fitting(wanted, text); !others.empty())
    warnings.push_back(std::filesystem::path(path).filename().string() +
                       ": fields are separated by " + separator_text(separator) +
                       ", although every row has equally many of " + others +
                       "; name another separator with --separator");
  CsvTable table(std::move(bytes), path, separator);
  if (table.columns() >= 2) return table;
  throw DataError(path + ": found 1 column, expected at least 2, separated by " +
                  (wanted == "auto" ? "',', ';', a tab or '|'" : separator_text(separator)) +
                  ": features and a label; row 1 is " + beginning(table.field(0, 0)) +
                  (wanted == "auto" && table.field(0, 0).find(' ') != std::string_view::npos
                       ? "; --separator space cuts at blanks, others can be named, too"
                   : wanted == "auto" ? "; name another separator with --separator"
                                      : "; --separator auto finds the usual ones"));
}

// Returns a line about the first two classes that are the same number, written differently; "" if
// there are none.
std::string equal_classes_line(const std::string& path, const Labels& all) {
  const auto* const labels = std::get_if<ClassLabels>(&all);
  std::map<double, std::string> classes;
  for (const std::string& name : labels == nullptr ? std::vector<std::string>() : labels->names) {
    const std::optional<double> number = number_called(name);
    if (!number) continue;
    const auto [before, is_new] = classes.emplace(*number, name);
    if (!is_new)
      return std::filesystem::path(path).filename().string() + ": '" + before->second + "' and '" +
             name +
             "' are the same number, but two classes: labels are compared as texts; if they "
             "are one class, write them alike";
  }
  return "";
}

// Returns a line about classes with a single row, such as sums and lines between head and rows; ""
// if there are none.
std::string single_rows_line(const std::string& path, const Labels& all, std::size_t first) {
  constexpr std::size_t kMaxNames = 5;
  const auto* const labels = std::get_if<ClassLabels>(&all);
  if (labels == nullptr) return "";
  std::vector<std::size_t> counts(labels->names.size(), 0), rows(labels->names.size(), 0);
  for (std::size_t i = 0; i < labels->ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(labels->ids[i]);
    ++counts[id];
    rows[id] = first + i + 1;
  }
  std::vector<std::string> names;
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (counts[c] == 1)
      names.push_back("'" + base::escape_text(labels->names[c].substr(0, 40)) + "' (row " +
                      std::to_string(rows[c]) + ")");
  if (names.empty()) return "";
  const std::size_t more = names.size() - std::min(names.size(), kMaxNames);
  names.resize(names.size() - more);
  return std::filesystem::path(path).filename().string() +
         ": classes of a single row, which is never tested: " + base::join_text(names) +
         (more > 0 ? " and " + std::to_string(more) + " more" : "") +
         "; if such a row is no sample, remove it";
}

// `labels` are those of all data rows. `rows` are positions among these.
Dataset encode(const CsvTable& table, const std::vector<CsvColumn>& columns, const Labels& labels,
               std::size_t first, const std::vector<std::size_t>& rows) {
  std::size_t width = 0;
  for (const CsvColumn& column : columns) width += column.features();
  FeatureSamples features{.extents = {1, 1, static_cast<std::int64_t>(width)}};
  features.values.resize(rows.size() * width);
  float* out = features.values.data();
  for (const std::size_t row : rows) {
    for (const CsvColumn& column : columns) {
      column.encode(table.field(first + row, column.index), out);
      out += column.features();
    }
  }
  Dataset set{.name = std::filesystem::path(table.name()).filename().string(),
              .samples = std::move(features),
              .labels = labels};
  const std::vector<std::int64_t> chosen(rows.begin(), rows.end());
  std::visit([&](auto& kind) { kind.keep(chosen); }, set.labels);
  return set;
}

std::unique_ptr<CsvAnswers> read_answers(const CsvTable& table, const CsvSelection& selection,
                                         const CsvMissing& missing, char label_decimal, Task task) {
  const std::size_t first = selection.first_row();
  switch (task) {
    case Task::kRegression:
      return read_numbers(table, selection.label, first, label_decimal, missing,
                          selection.title(selection.label));
    case Task::kMultiLabel:
      return read_flags(table, selection.labels(), first, missing, selection.label_titles());
    case Task::kClassification:
      break;
  }
  return read_classes(table, selection.label, first, missing);
}

}  // namespace

DatasetSplits read_csv_splits(const DatasetOptions& options) {
  const std::string path =
      options.csv.annotations.empty() ? only_csv_file(options.directory) : options.csv.annotations;
  if (options.coding) return read_coded_table(path, options);
  const auto missing =
      std::make_shared<const CsvMissing>(CsvMissing::of_option(options.csv.missing));
  std::vector<std::string> warnings;
  const CsvTable table = read_table(path, options.csv.separator, warnings);
  std::vector<ColumnScan> scans = scan_columns(table, 1, *missing, options.csv.decimal);
  const CsvSelection selection = select_columns(table, scans, *missing, options);
  const std::size_t first = selection.first_row();
  if (table.rows() < first + 2) {
    throw DataError(path + ": found " + std::to_string(table.rows() - first) +
                    " rows of data, expected at least 2");
  }
  for (std::size_t c = 0; first == 0 && c < scans.size(); ++c) scans[c].add(table, c, 0, *missing);
  const std::string title = selection.title(selection.label);
  const char label_decimal = scans[selection.label].decimal;
  const std::unique_ptr<CsvAnswers> answers =
      read_answers(table, selection, *missing, label_decimal, options.task);
  const std::vector<bool> for_test = answers->draw_test_rows(options.csv.test_share, options.seed);
  std::vector<std::size_t> train, test;  // positions among the rows of data
  for (std::size_t i = 0; i < for_test.size(); ++i) (for_test[i] ? test : train).push_back(i);
  const Labels labels = answers->labels(train);
  for (const std::string& line :
       {single_rows_line(path, labels, first), equal_classes_line(path, labels)})
    if (!line.empty()) warnings.push_back(line);

  std::vector<CsvColumn> columns;
  std::vector<std::size_t> train_rows = train;
  for (std::size_t& row : train_rows) row += first;
  for (const std::size_t c : selection.columns)
    columns.push_back(learn_column(table, c, scans[c], missing, train_rows));
  DatasetSplits splits{encode(table, columns, labels, first, train),
                       encode(table, columns, labels, first, test)};
  const std::size_t features = splits.train.as<FeatureSamples>().width();
  if (features == 0) throw DataError(path + ": no column besides the label has a value");
  splits.columns = columns_text(table, selection, columns, answers_text(title, labels));
  for (std::string& line :
       reading_notices(table, selection, columns, scans, options.task == Task::kRegression))
    warnings.push_back(std::move(line));
  for (std::string& line : column_warnings(table, selection, columns))
    warnings.push_back(std::move(line));
  splits.warnings = std::move(warnings);
  const char found = options.csv.separator == "auto" ? table.separator() : '\0';
  splits.coding = std::make_shared<const CsvCoding>(CsvCoding{.selection = selection,
                                                              .table_columns = table.columns(),
                                                              .separator = options.csv.separator,
                                                              .found_separator = found,
                                                              .missing = missing,
                                                              .label_decimal = label_decimal,
                                                              .features = features,
                                                              .columns = std::move(columns)});
  return splits;
}

}  // namespace io
