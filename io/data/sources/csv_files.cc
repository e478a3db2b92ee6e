// From a table of fields to features and labels, split into a training and a test part.
#include "io/data/sources/csv_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <vector>

#include "io/base/io_error.h"
#include "io/base/nearest.h"
#include "io/base/split_mix.h"
#include "io/data/sources/csv_columns.h"
#include "io/data/sources/csv_table.h"
#include "io/data/sources/data_file.h"

namespace io {
namespace {

constexpr std::uint64_t kSplitStream =
    0x637376;  // keeps the split's random numbers apart from the sample order's

std::string only_csv_file(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(directory, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".csv") || name.ends_with(".csv.gz")) found.push_back(entry.path().string());
  }
  if (found.size() == 1) return found[0];
  const std::string hint = "; name one with --annotations FILE.csv";
  if (found.empty()) throw MissingFileError("no *.csv in " + directory + hint);
  throw ConfigError("found " + std::to_string(found.size()) + " files *.csv in " + directory +
                    ", expected one" + hint);
}

bool is_number(std::string_view field) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size();
}

bool looks_like_header(const CsvTable& table) {
  bool tells = false;  // a column whose first field alone is no number
  for (std::size_t c = 0; c < table.columns(); ++c) {
    if (is_missing(table.field(0, c)) || is_number(table.field(0, c))) return false;
    bool numbers = false, others = false;
    for (std::size_t row = 1; row < table.rows() && !others; ++row) {
      const std::string_view field = table.field(row, c);
      if (is_number(field))
        numbers = true;
      else
        others = !is_missing(field);
    }
    tells = tells || (numbers && !others);
  }
  return tells;
}

// The first row's fields, or nothing.
std::vector<std::string> header_of(const CsvTable& table, const DatasetOptions& options) {
  std::vector<std::string> names;
  for (std::size_t c = 0; c < table.columns(); ++c) names.emplace_back(table.field(0, c));
  // A number means a position: it says nothing about row 1, which may well have that number in it.
  const bool named = !options.label_column.empty() && !is_number(options.label_column) &&
                     std::find(names.begin(), names.end(), options.label_column) != names.end();
  const bool header = options.csv_header == "yes" ||
                      (options.csv_header != "no" && (named || looks_like_header(table)));
  return header ? names : std::vector<std::string>();
}

std::size_t label_column(const CsvTable& table, const std::vector<std::string>& header,
                         const std::string& wanted) {
  if (wanted.empty()) return table.columns() - 1;
  const auto found = std::find(header.begin(), header.end(), wanted);
  if (found != header.end()) {
    if (std::find(found + 1, header.end(), wanted) != header.end())
      throw ConfigError(table.name() + ": several columns are called '" + wanted +
                        "'; give --label-column a number from 1");
    return static_cast<std::size_t>(found - header.begin());
  }
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  if (error == std::errc() && end == wanted.data() + wanted.size() && number >= 1 &&
      number <= table.columns())
    return number - 1;
  throw ConfigError(table.name() + ": no label column '" + wanted + "'" +
                    base::did_you_mean(wanted, header) + " (" +
                    (header.empty() ? "the file has no header"
                                    : "the header names " + std::to_string(header.size())) +
                    "; a number from 1 to " + std::to_string(table.columns()) + " will do, too)");
}

// Whether each row is for testing: of each class the same share, drawn.
std::vector<bool> draw_test_rows(const CsvLabels& labels, double share, std::uint64_t seed) {
  std::vector<std::vector<std::size_t>> rows(labels.names.size());
  for (std::size_t i = 0; i < labels.ids.size(); ++i)
    rows[static_cast<std::size_t>(labels.ids[i])].push_back(i);
  std::vector<bool> test(labels.ids.size(), false);
  for (std::size_t c = 0; c < rows.size(); ++c) {
    SplitMix random(seed, kSplitStream, c);
    std::vector<std::size_t>& own = rows[c];
    const auto wanted =
        static_cast<std::size_t>(std::llround(share * static_cast<double>(own.size())));
    for (std::size_t i = 0; i < std::min(wanted, own.size() - 1); ++i) {
      std::swap(own[i], own[i + random.below(static_cast<std::uint32_t>(own.size() - i))]);
      test[own[i]] = true;
    }
  }
  return test;
}

struct Rows {
  std::vector<std::size_t> train, test;
};

Dataset encode(const CsvTable& table, const std::vector<CsvColumn>& columns,
               const CsvLabels& labels, std::size_t first, const std::vector<std::size_t>& rows) {
  std::size_t width = 0;
  for (const CsvColumn& column : columns) width += column.features();
  Dataset set;
  set.name = std::filesystem::path(table.name()).filename().string();
  set.kind = SampleKind::kFeatures;
  set.shape = {1, 1, static_cast<std::int64_t>(width)};
  set.classes = static_cast<std::int64_t>(labels.names.size());
  set.features.resize(rows.size() * width);
  float* out = set.features.data();
  for (const std::size_t row : rows) {
    for (const CsvColumn& column : columns) {
      column.encode(table.field(row, column.index), out);
      out += column.features();
    }
    set.labels.push_back(labels.ids[row - first]);
  }
  return set;
}

}  // namespace

DatasetSplits read_csv_splits(const DatasetOptions& options) {
  const std::string path =
      options.annotations.empty() ? only_csv_file(options.directory) : options.annotations;
  const CsvTable table(DataFile(path).read_up_to(std::numeric_limits<std::uint64_t>::max()), path);
  if (table.columns() < 2) {
    throw DataError(
        path + ": found 1 column, expected at least 2, separated by commas: features and a label");
  }
  const std::vector<std::string> header = header_of(table, options);
  const std::size_t first = header.empty() ? 0 : 1,
                    label = label_column(table, header, options.label_column);
  if (table.rows() < first + 2) {
    throw DataError(path + ": found " + std::to_string(table.rows() - first) +
                    " rows of data, expected at least 2");
  }
  const CsvLabels labels = read_labels(table, label, first);
  const std::vector<bool> for_test = draw_test_rows(labels, options.test_share, options.seed);
  Rows rows;
  for (std::size_t i = 0; i < for_test.size(); ++i)
    (for_test[i] ? rows.test : rows.train).push_back(first + i);

  std::vector<CsvColumn> columns;
  for (std::size_t c = 0; c < table.columns(); ++c) {
    if (c != label) columns.push_back(learn_column(table, c, first, rows.train));
  }
  DatasetSplits splits{encode(table, columns, labels, first, rows.train),
                       encode(table, columns, labels, first, rows.test)};
  if (splits.train.shape[2] == 0)
    throw DataError(path + ": no column besides the label has a value");
  return splits;
}

}  // namespace io
