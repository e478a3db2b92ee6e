// From a table of fields to features and labels, split into a training and a test part.
#include "io/data/sources/csv/csv_files.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/text/text_format.h"
#include "io/base/text/text_parts.h"
#include "io/data/sources/csv/coded_table.h"
#include "io/data/sources/csv/csv_answers.h"
#include "io/data/sources/csv/csv_coding.h"
#include "io/data/sources/csv/csv_columns.h"
#include "io/data/sources/csv/csv_report.h"
#include "io/data/sources/csv/csv_scan.h"
#include "io/data/sources/csv/csv_selection.h"
#include "io/data/sources/csv/csv_separator.h"
#include "io/data/sources/csv/csv_table.h"
#include "io/data/sources/csv/csv_text.h"
#include "io/data/sources/data_file.h"
#include "io/data/sources/data_folder.h"

namespace io {
namespace {

std::string only_csv_file(const std::string& directory) {
  std::error_code failure;
  if (std::filesystem::is_regular_file(directory, failure)) return directory;
  LeftOut ignored;  // one file is read, and the options say which
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

// What the beginning of a file that is not cut into columns looks like.
std::string beginning(std::string_view field) {
  constexpr std::size_t kShown = 60;
  std::string text(field.substr(0, kShown));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = ' ';
  return "'" + text + (field.size() > kShown ? "...'" : "'");
}

CsvTable read_table(const std::string& path, const std::string& wanted) {
  std::vector<std::uint8_t> bytes = CsvText(path).rest();
  const char separator =
      csv_separator(wanted, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  CsvTable table(std::move(bytes), path, separator);
  if (table.columns() >= 2) return table;
  throw DataError(path + ": found 1 column, expected at least 2, separated by " +
                  (wanted == "auto" ? "',', ';', a tab or '|'" : separator_text(separator)) +
                  ": features and a label; row 1 is " + beginning(table.field(0, 0)) +
                  (wanted == "auto" ? "; name another separator with --separator"
                                    : "; --separator auto finds the usual ones"));
}

struct Rows {
  std::vector<std::size_t> train, test;
};

// What is predicted: of each row of data a class, or a number. One of the two is there.
struct Answers {
  CsvLabels labels;
  std::vector<double> numbers;
  std::optional<TargetScale> target;
};

Dataset encode(const CsvTable& table, const std::vector<CsvColumn>& columns, const Answers& answers,
               std::size_t first, const std::vector<std::size_t>& rows) {
  std::size_t width = 0;
  for (const CsvColumn& column : columns) width += column.features();
  Dataset set;
  set.name = std::filesystem::path(table.name()).filename().string();
  set.kind = SampleKind::kFeatures;
  set.shape = {1, 1, static_cast<std::int64_t>(width)};
  set.classes = answers.target ? 1 : static_cast<std::int64_t>(answers.labels.names.size());
  set.class_names = answers.labels.names;
  set.target = answers.target;
  set.features.resize(rows.size() * width);
  float* out = set.features.data();
  for (const std::size_t row : rows) {
    for (const CsvColumn& column : columns) {
      column.encode(table.field(row, column.index), out);
      out += column.features();
    }
    if (set.target)
      set.targets.push_back(static_cast<float>((answers.numbers[row - first] - set.target->mean) /
                                               set.target->deviation));
    else
      set.labels.push_back(answers.labels.ids[row - first]);
  }
  return set;
}

}  // namespace

DatasetSplits read_csv_splits(const DatasetOptions& options) {
  const std::string path =
      options.annotations.empty() ? only_csv_file(options.directory) : options.annotations;
  if (options.coding) return read_coded_table(path, options);
  const auto missing =
      std::make_shared<const CsvMissing>(CsvMissing::of_option(options.csv_missing));
  const CsvTable table = read_table(path, options.csv_separator);
  std::vector<ColumnScan> scans = scan_columns(table, 1, *missing, options.csv_decimal);
  const CsvSelection selection = select_columns(table, scans, *missing, options);
  const std::size_t first = selection.first_row();
  if (table.rows() < first + 2) {
    throw DataError(path + ": found " + std::to_string(table.rows() - first) +
                    " rows of data, expected at least 2");
  }
  for (std::size_t c = 0; first == 0 && c < scans.size(); ++c) scans[c].add(table, c, 0, *missing);
  const std::string title = selection.title(selection.label);
  const char label_decimal = scans[selection.label].decimal;
  Answers answers;
  if (options.regression)
    answers.numbers = read_targets(table, selection.label, first, label_decimal, *missing, title);
  else
    answers.labels = read_labels(table, selection.label, first, *missing);
  const std::vector<bool> for_test =
      draw_test_rows(options.regression ? one_class(answers.numbers.size()) : answers.labels,
                     options.test_share, options.seed);
  Rows rows;
  for (std::size_t i = 0; i < for_test.size(); ++i)
    (for_test[i] ? rows.test : rows.train).push_back(first + i);
  if (options.regression)
    answers.target = measure_target(path, title, answers.numbers, first, rows.train);

  std::vector<CsvColumn> columns;
  for (const std::size_t c : selection.columns)
    columns.push_back(learn_column(table, c, scans[c], missing, rows.train));
  DatasetSplits splits{encode(table, columns, answers, first, rows.train),
                       encode(table, columns, answers, first, rows.test)};
  if (splits.train.shape[2] == 0)
    throw DataError(path + ": no column besides the label has a value");
  splits.columns = columns_text(
      table, selection, columns,
      answers.target
          ? "target " + title + " (mean " + base::number_text("%.4g", answers.target->mean) +
                ", deviation " + base::number_text("%.4g", answers.target->deviation) + ")"
          : "label " + title + " (" + std::to_string(answers.labels.names.size()) + " classes)");
  splits.warnings = reading_notices(table, selection, columns, scans);
  for (std::string& line : column_warnings(table, selection, columns))
    splits.warnings.push_back(std::move(line));
  splits.coding = std::make_shared<const CsvCoding>(
      CsvCoding{.selection = selection,
                .table_columns = table.columns(),
                .separator = options.csv_separator,
                .missing = missing,
                .label_decimal = label_decimal,
                .features = static_cast<std::size_t>(splits.train.shape[2]),
                .columns = std::move(columns)});
  return splits;
}

}  // namespace io
