// Reads rows with the stream that `engine predict` uses, and adds their answers.
#include "io/data/readers/csv/coded_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/readers/csv/csv_answers.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/readers/csv/table_inputs.h"

namespace io {
namespace {

// Returns these samples of a set, with all its properties.
Dataset take_rows(const Dataset& all, const std::vector<std::size_t>& rows) {
  const FeatureSamples& from = all.as<FeatureSamples>();
  const std::size_t width = from.width();
  FeatureSamples features = from.like();
  features.values.reserve(rows.size() * width);
  for (const std::size_t row : rows) {
    const float* values = from.values.data() + row * width;
    features.values.insert(features.values.end(), values, values + width);
  }
  Dataset part{.name = all.name, .samples = std::move(features), .labels = all.labels};
  const std::vector<std::int64_t> chosen(rows.begin(), rows.end());
  std::visit([&](auto& kind) { kind.keep(chosen); }, part.labels);
  return part;
}

// All rows of a table, coded as another table was.
struct CodedRows {
  std::shared_ptr<const CsvCoding> coding;  // that of the other table, with the answers of this one
  Dataset set;                              // without labels
  std::unique_ptr<CsvAnswers> answers;
  std::vector<std::int64_t> places;
  std::vector<std::string> unknown;
};

TableAnswers::Kind kind_of(Task task) {
  switch (task) {
    case Task::kRegression:
      return TableAnswers::Kind::kTargets;
    case Task::kMultiLabel:
      return TableAnswers::Kind::kFlags;
    case Task::kClassification:
      break;
  }
  return TableAnswers::Kind::kLabels;
}

const char* name_of(Task task) {
  if (task == Task::kClassification) return "classification";
  return task == Task::kRegression ? "regression" : "multi-label";
}

Task task_of(const Dataset& like) {
  if (like.find<MultiLabels>() != nullptr) return Task::kMultiLabel;
  return like.target() != nullptr ? Task::kRegression : Task::kClassification;
}

// Returns the coding for the answers of a table, those that `found` has. By default they have the
// columns of the coding's own table.
std::shared_ptr<const CsvCoding> with_answers(const CsvCoding& coding, const CsvSelection& found) {
  auto changed = std::make_shared<CsvCoding>(coding);
  CsvSelection& own = changed->selection;
  const auto column_of = [&](std::size_t column) {
    if (own.header.empty()) return column;
    const auto at = std::ranges::find(own.header, found.header[column]) - own.header.begin();
    if (at == std::ssize(own.header)) {
      own.header.push_back(found.header[column]);
      ++changed->table_columns;
    }
    return static_cast<std::size_t>(at);
  };
  own.label = column_of(found.label);
  own.more_labels.clear();
  for (const std::size_t column : found.more_labels) own.more_labels.push_back(column_of(column));
  return changed;
}

TableAnswers answers_of(const DatasetOptions& options) {
  TableAnswers answers{.kind = kind_of(options.task),
                       .columns = label_names(options.csv.label_column, options.task),
                       .is_named = options.csv.given.label && !options.csv.label_column.empty()};
  const auto* const flags = options.coding->like.find<MultiLabels>();
  if (flags != nullptr && !options.coding->inputs_only) answers.labels = flags->names;
  return answers;
}

CodedRows read_coded_rows(const std::string& path, const SampleCoding& coding,
                          const DatasetOptions& options) {
  constexpr std::int64_t kBlock = 4096;
  const CsvCoding& table = *coding.table;
  const std::unique_ptr<TableStream> stream = open_table(path, table, answers_of(options));
  CodedRows rows;
  rows.coding = coding.inputs_only ? with_answers(table, stream->answers()) : coding.table;
  FeatureSamples features{.extents = {1, 1, static_cast<std::int64_t>(table.features)}};
  std::vector<std::string> labels;
  std::vector<double> numbers;
  std::vector<float> flags;
  const auto append = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  for (;;) {
    SampleBlock block;
    stream->fill(kBlock, Wanted::kSamples, block);
    if (block.count() == 0) break;
    append(features.values, std::get<FeatureSamples>(block.samples).values);
    append(labels, block.labels);
    append(numbers, block.targets);
    append(flags, block.flags);
    append(rows.places, block.rows);
  }
  if (rows.places.empty()) throw DataError(path + ": found no row of data, expected at least 1");
  rows.unknown = stream->unknown();
  rows.set = {.name = std::filesystem::path(path).filename().string(),
              .samples = std::move(features)};
  const CsvSelection& selection = rows.coding->selection;
  if (options.task == Task::kRegression)
    rows.answers = number_answers(path, selection.title(selection.label), std::move(numbers));
  else if (options.task == Task::kMultiLabel)
    rows.answers = flag_answers(selection.label_titles(), std::move(flags));
  else
    rows.answers = class_answers(labels);
  return rows;
}

void code_answers(const SampleCoding& coding, CodedRows& rows,
                  const std::vector<std::size_t>& training) {
  if (coding.inputs_only) {
    rows.set.labels = rows.answers->labels(training);
    return;
  }
  rows.set.labels = rows.answers->labels(training, coding.like.target());
  match_classes(
      coding, rows.set,
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
  if (const Task task = task_of(coding.like); !coding.inputs_only && task != options.task)
    throw DataError(path + ": --task is " + name_of(options.task) + ", but the model of " +
                    coding.source + " predicts " +
                    (task == Task::kClassification ? "classes"
                     : task == Task::kRegression   ? "a number"
                                                   : "several labels of 0 or 1"));
  CodedRows rows = read_coded_rows(path, coding, options);
  std::vector<std::size_t> train, test;
  const bool whole = options.parts == Parts::kHoldOut;
  const std::vector<bool> for_test =
      whole ? std::vector<bool>(rows.places.size(), true)
            : rows.answers->draw_test_rows(options.csv.test_share, options.seed);
  for (std::size_t i = 0; i < for_test.size(); ++i) (for_test[i] ? test : train).push_back(i);
  code_answers(coding, rows, train);
  DatasetSplits splits{take_rows(rows.set, train), take_rows(rows.set, test)};
  splits.coding = rows.coding;
  splits.unknown = std::move(rows.unknown);
  splits.columns = rows.set.name + ": coded as in " + coding.source;
  return splits;
}

}  // namespace io
