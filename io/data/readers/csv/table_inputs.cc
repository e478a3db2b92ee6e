// Reads rows of a CSV file in blocks, with the coding learned from another table's columns.
#include "io/data/readers/csv/table_inputs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "io/data/readers/csv/cell_counts.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/readers/csv/table_blocks.h"
#include "io/data/tables/csv_header.h"
#include "io/data/tables/csv_number.h"
#include "io/data/tables/csv_table.h"
#include "io/data/tables/csv_text.h"

namespace io {
namespace {

constexpr const char* kNoHeader =
    "; expected a header, or --csv-header no for a file without one, whose columns are those of "
    "the training table in their order";

class TableRows : public TableStream {
 public:
  TableRows(const std::string& path, const CsvCoding& coding, const TableAnswers& answers)
      : path_(path),
        coding_(coding),
        like_{.extents = {1, 1, static_cast<std::int64_t>(coding.features)}},
        answers_(answers),
        blocks_(path, coding, answers.kind != TableAnswers::Kind::kNone),
        table_(blocks_.next()),
        cells_(coding) {
    const bool has_header = !coding.selection.header.empty();
    row_ = has_header ? 1 : 0;
    set_answers(has_header ? find_names() : find_places());
    read_targets_of_block();
  }

  void fill(std::int64_t most, Wanted wanted, SampleBlock& block) override {
    while (block.count() < most && table_) {
      if (row_ == table_->rows()) {
        rows_before_ += static_cast<std::int64_t>(table_->rows());
        table_ = blocks_.next();
        row_ = 0;
        if (table_) read_targets_of_block();
        continue;
      }
      count_cells();
      if (wanted == Wanted::kSamples) append(block);
      block.origins.push_back({path_, ++done_});
      ++row_;
    }
  }

  std::vector<std::string> unknown() const override { return cells_.lines(path_, done_); }
  const CsvSelection& answers() const override { return found_; }

 private:
  // The training table had no header: columns are found by position. Returns those of the answers.
  std::vector<std::size_t> find_places() {
    const std::vector<std::size_t> labels = coding_.selection.labels();
    const std::size_t found = table_->columns();
    const bool has_answers = answers_.kind != TableAnswers::Kind::kNone;
    const bool without_label = found + labels.size() == coding_.table_columns && !has_answers;
    if (found != coding_.table_columns && !without_label)
      throw DataError(path_ + ": found " + std::to_string(found) + " columns, expected the " +
                      std::to_string(coding_.table_columns) + " of the training table" +
                      (has_answers ? ", the label among them" : ", or those without the label"));
    for (const CsvColumn& column : coding_.columns) {
      const auto before = [&](std::size_t label) { return label < column.index; };
      places_.push_back(
          column.index -
          (without_label ? static_cast<std::size_t>(std::ranges::count_if(labels, before)) : 0));
    }
    return answers_.is_named ? named_answers() : labels;
  }

  std::vector<std::size_t> find_names() {
    std::vector<std::string> given;
    for (std::size_t c = 0; c < table_->columns(); ++c) given.emplace_back(table_->field(0, c));
    for (const CsvColumn& column : coding_.columns)
      places_.push_back(place_of(given, coding_.selection.header[column.index]));
    found_.header = unique_names(given);
    if (answers_.kind == TableAnswers::Kind::kNone) return {};
    if (answers_.is_named) return named_answers();
    if (answers_.columns.size() == 1 && answers_.kind != TableAnswers::Kind::kFlags &&
        std::ranges::find(given, answers_.columns[0]) != given.end())
      return {place_of(given, answers_.columns[0])};
    std::vector<std::size_t> columns;
    for (const std::size_t label : coding_.selection.labels())
      columns.push_back(place_of(given, coding_.selection.header[label]));
    return columns;
  }

  // Returns the columns that --label-column names.
  std::vector<std::size_t> named_answers() const {
    std::vector<bool> inputs(table_->columns(), false);
    for (const std::size_t place : places_) inputs[place] = true;
    std::vector<std::size_t> columns =
        label_columns(*table_, found_.header, answers_.columns, inputs);
    for (const std::size_t column : columns)
      if (inputs[column])
        throw ConfigError(path_ + ": --label-column names " + found_.title(column) +
                          ", which is an input of the model");
    if (answers_.labels.empty()) return columns;
    std::vector<std::string> names;
    names.reserve(columns.size());
    for (const std::size_t column : columns) names.push_back(found_.title(column));
    const bool by_position = found_.header.empty() && columns.size() == answers_.labels.size();
    if (!by_position && !std::ranges::is_permutation(names, answers_.labels))
      throw DataError(path_ + ": --label-column names " + base::join_text(names) +
                      ", but the labels of the model are " + base::join_text(answers_.labels));
    if (by_position || names == answers_.labels) return columns;
    std::vector<std::size_t> ordered;
    for (const std::string& label : answers_.labels)
      ordered.push_back(
          columns[static_cast<std::size_t>(std::ranges::find(names, label) - names.begin())]);
    return ordered;
  }

  void set_answers(const std::vector<std::size_t>& columns) {
    if (columns.empty()) return;
    found_.label = columns[0];
    found_.more_labels.assign(columns.begin() + 1, columns.end());
    answer_columns_ = columns;
    answer_titles_ = found_.label_titles();
  }

  // Returns true if no column has a name of the training table, and one has a number.
  bool is_row_of_data(const std::vector<std::string>& header) const {
    const std::vector<std::string>& trained = coding_.selection.header;
    return std::ranges::find_first_of(header, trained) == header.end() &&
           std::ranges::any_of(
               header, [](const std::string& cell) { return number_called(cell).has_value(); });
  }

  // `given` has the names of the header as they are written.
  std::size_t place_of(const std::vector<std::string>& given, const std::string& name) const {
    const std::vector<std::string> header = unique_names(given);
    const std::vector<std::string>& trained = coding_.selection.header;
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end()) {
      std::vector<std::string> unknown;  // a known one has a role of its own
      std::ranges::copy_if(header, std::back_inserter(unknown), [&](const std::string& column) {
        return std::ranges::find(trained, column) == trained.end();
      });
      throw DataError(path_ + ": row 1 names no column '" + name +
                      "', which the model was trained with" +
                      (is_row_of_data(header) ? kNoHeader : base::did_you_mean(name, unknown)) +
                      encoding_hint(header));
    }
    // The later ones of equal names were renamed in both tables, or the model has only one.
    if (std::count(given.begin(), given.end(), name) > 1 &&
        std::find(trained.begin(), trained.end(), name + ".1") == trained.end())
      throw DataError(path_ + ": several columns are called '" + name + "', expected one");
    return static_cast<std::size_t>(found - header.begin());
  }

  void count_cells() {
    for (std::size_t i = 0; i < places_.size(); ++i)
      cells_.add(i, table_->field(row_, places_[i]), file_row());
    if (answers_.kind == TableAnswers::Kind::kTargets)
      cells_.add_target(table_->field(row_, answer_columns_[0]), file_row());
  }

  void append(SampleBlock& block) {
    std::vector<float>& features = block.samples_like(like_).values;
    const std::size_t before = features.size();
    features.resize(before + coding_.features);
    float* out = features.data() + before;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const CsvColumn& column = coding_.columns[i];
      const std::string_view field = table_->field(row_, places_[i]);
      if (!column.encode(field, out))
        throw DataError(table_->place(row_) + ": found '" + std::string(field.substr(0, 40)) +
                        "' in " + coding_.selection.title(column.index) +
                        ", expected a number, as in training");
      out += column.features();
    }
    if (answers_.kind == TableAnswers::Kind::kNone) return;
    block.rows.push_back(file_row());
    if (answers_.kind == TableAnswers::Kind::kTargets) {
      block.targets.push_back(targets_[row_ - first_]);
      return;
    }
    if (answers_.kind == TableAnswers::Kind::kFlags) {
      for (std::size_t k = 0; k < answer_columns_.size(); ++k)
        block.flags.push_back(
            read_flag(*table_, answer_columns_[k], row_, *coding_.missing, answer_titles_[k]));
      return;
    }
    const std::string_view label = table_->field(row_, answer_columns_[0]);
    if (coding_.missing->has(label))
      throw DataError(table_->place(row_) + ": no label in column " +
                      std::to_string(answer_columns_[0] + 1) + ": found '" + std::string(label) +
                      "'");
    block.labels.emplace_back(label);
  }

  void read_targets_of_block() {
    if (answers_.kind != TableAnswers::Kind::kTargets) return;
    first_ = row_;
    targets_ = read_targets(*table_, answer_columns_[0], first_, coding_.label_decimal,
                            *coding_.missing, answer_titles_[0]);
  }

  std::int64_t file_row() const { return rows_before_ + static_cast<std::int64_t>(row_) + 1; }

  const std::string path_;
  const CsvCoding& coding_;
  const FeatureSamples like_;
  const TableAnswers answers_;
  TableBlocks blocks_;
  std::unique_ptr<CsvTable> table_;
  CellCounts cells_;
  std::size_t row_ = 0, first_ = 0;  // in table_; first_: the first row with a target
  std::int64_t rows_before_ = 0;     // rows of the file before table_
  std::int64_t done_ = 0;
  CsvSelection found_;                       // see answers()
  std::vector<std::size_t> places_;          // for each column of the coding
  std::vector<std::size_t> answer_columns_;  // of the labels or the target
  std::vector<std::string> answer_titles_;   // the same, for messages
  std::vector<double> targets_;              // targets of table_'s rows from first_ on
};

}  // namespace

std::unique_ptr<TableStream> open_table(const std::string& path, const CsvCoding& coding,
                                        const TableAnswers& answers) {
  return std::make_unique<TableRows>(path, coding, answers);
}

}  // namespace io
