// Rows come from the stream that `engine predict` reads; answers are added to them.
#include "io/data/sources/csv/coded_table.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/sources/csv/csv_answers.h"
#include "io/data/sources/csv/csv_coding.h"
#include "io/data/sources/inputs/sample_stream.h"
#include "io/data/sources/sample_coding.h"

namespace io {
namespace {

// These samples of a set, with all that it states.
Dataset take_rows(const Dataset& all, const std::vector<std::size_t>& rows) {
  Dataset part;
  part.name = all.name;
  part.kind = all.kind;
  part.shape = all.shape;
  part.classes = all.classes;
  part.class_names = all.class_names;
  part.unknown_classes = all.unknown_classes;
  part.target = all.target;
  const auto width = static_cast<std::size_t>(all.sample_count());
  part.features.reserve(rows.size() * width);
  for (const std::size_t row : rows) {
    const float* features = all.features.data() + row * width;
    part.features.insert(part.features.end(), features, features + width);
    if (all.target)
      part.targets.push_back(all.targets[row]);
    else
      part.labels.push_back(all.labels[row]);
  }
  return part;
}

// All rows of a table, coded as another one was.
struct CodedRows {
  Dataset set;
  CsvLabels labels;             // of classes, with the names that the table has
  std::vector<double> numbers;  // of a regression
  std::vector<std::int64_t> places;
  std::vector<std::string> unknown;
};

CodedRows read_coded_rows(const std::string& path, const SampleCoding& coding,
                          const DatasetOptions& options) {
  constexpr std::int64_t kBlock = 4096;
  using Kind = TableAnswers::Kind;
  CsvCoding table = *coding.table;
  table.separator = options.csv_separator;
  const auto stream = open_table(path, table,
                                 {.kind = options.regression ? Kind::kTargets : Kind::kLabels,
                                  .column = options.label_column});
  CodedRows rows;
  rows.set.name = std::filesystem::path(path).filename().string();
  rows.set.kind = SampleKind::kFeatures;
  rows.set.shape = {1, 1, static_cast<std::int64_t>(table.features)};
  std::vector<std::string> labels;
  const auto append = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  for (;;) {
    SampleBlock block;
    stream->fill(kBlock, Wanted::kSamples, block);
    if (block.count() == 0) break;
    append(rows.set.features, block.features);
    append(labels, block.labels);
    append(rows.numbers, block.targets);
    append(rows.places, block.rows);
  }
  if (rows.places.empty()) throw DataError(path + ": found no row of data, expected at least 1");
  rows.unknown = stream->unknown();
  if (!options.regression)
    rows.labels = classes_of(std::vector<std::string_view>(labels.begin(), labels.end()));
  return rows;
}

void code_answers(const std::string& path, const SampleCoding& coding, CodedRows& rows,
                  const std::vector<std::size_t>& training) {
  Dataset& set = rows.set;
  if (!rows.numbers.empty()) {
    const CsvSelection& selection = coding.table->selection;
    set.classes = 1;
    set.target = coding.inputs_only ? measure_target(path, selection.title(selection.label),
                                                     rows.numbers, 0, training)
                                    : coding.like.target;
    for (const double number : rows.numbers)
      set.targets.push_back(
          static_cast<float>((number - set.target->mean) / set.target->deviation));
    return;
  }
  set.labels = rows.labels.ids;
  set.class_names = rows.labels.names;
  set.classes = std::ssize(set.class_names);
  if (coding.inputs_only) return;
  match_classes(
      coding, set,
      [&](std::int64_t i) {
        return "row " + std::to_string(rows.places[static_cast<std::size_t>(i)]);
      },
      rows.unknown);
}

}  // namespace

DatasetSplits read_coded_table(const std::string& path, const DatasetOptions& options) {
  const SampleCoding& coding = *options.coding;
  if (!coding.table)
    throw DataError(path + ": a table, but the model of " + coding.source +
                    " takes no rows of tables");
  if (!coding.inputs_only && coding.like.target.has_value() != options.regression)
    throw DataError(path + ": --task is " + (options.regression ? "regression" : "classification") +
                    ", but the model of " + coding.source + " predicts " +
                    (options.regression ? "classes" : "a number"));
  CodedRows rows = read_coded_rows(path, coding, options);
  std::vector<std::size_t> train, test;
  const bool whole = options.parts == Parts::kHoldOut;
  const std::vector<bool> for_test =
      whole ? std::vector<bool>(rows.places.size(), true)
            : draw_test_rows(options.regression ? one_class(rows.numbers.size()) : rows.labels,
                             options.test_share, options.seed);
  for (std::size_t i = 0; i < for_test.size(); ++i) (for_test[i] ? test : train).push_back(i);
  code_answers(path, coding, rows, train);
  DatasetSplits splits{take_rows(rows.set, train), take_rows(rows.set, test)};
  splits.coding = coding.table;
  splits.unknown = std::move(rows.unknown);
  splits.columns = rows.set.name + ": coded as in " + coding.source;
  return splits;
}

}  // namespace io
