// Reads rows of a CSV file in blocks, with the coding learned from another table's columns.
#include "io/data/readers/csv/table_inputs.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/data/readers/csv/cell_counts.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/tables/csv_header.h"
#include "io/data/tables/csv_number.h"
#include "io/data/tables/csv_separator.h"
#include "io/data/tables/csv_table.h"
#include "io/data/tables/csv_text.h"

namespace io {
namespace {

constexpr const char* kNoHeader =
    "; expected a header, or --csv-header no for a file without one, whose columns are those of "
    "the training table in their order";
constexpr std::size_t kBlock = std::size_t{1} << 20, kLongestRow = std::size_t{64} << 20;

// Reads the file as tables of whole rows.
class TableBlocks {
 public:
  // `start`: that of the first block.
  TableBlocks(const std::string& path, const CsvCoding& coding, const CsvStart& start, Pipes pipes)
      : file_(path, pipes), coding_(coding), start_(start) {}

  // Returns null at the end. Throws for an invalid row after the rows before it have been returned.
  std::unique_ptr<CsvTable> next() {
    if (failure_) std::rethrow_exception(failure_);
    std::size_t end = 0;
    while (!at_end_ && (end == 0 || !may_start())) {
      const std::size_t before = text_.size();
      if (before > kLongestRow)
        throw DataError(file_.path() + ": line " + std::to_string(start_.lines + 1) +
                        " begins a row of more than 64 MiB: is a quote never closed?");
      at_end_ = !(file_.is_pipe() ? file_.append_some(kBlock, text_) : file_.append(kBlock, text_));
      scan(before);
      end = row_ends_.empty() ? 0 : row_ends_.back();
    }
    if (at_end_) end = text_.size();
    if (end == 0 && started_) return nullptr;
    if (!started_)
      separator_ = separator_of({reinterpret_cast<const char*>(text_.data()), text_.size()});
    started_ = true;
    std::unique_ptr<CsvTable> table = valid_rows(end);
    text_.erase(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(end));
    row_ends_.clear();  // the rest contains no end of a row
    start_ = table->next();
    return table;
  }

 private:
  char separator_of(std::string_view text) const {
    return coding_.separator_is_fixed ? csv_separator(coding_.separator, text)
                                      : separator_after(coding_.separator, text);
  }

  // The separator is detected in the first rows, of a pipe as of a file.
  bool may_start() const {
    constexpr std::size_t kRows = 50;  // those that csv_separator() uses
    return started_ || coding_.separator_is_fixed || row_ends_.size() >= kRows ||
           text_.size() >= kBlock;
  }

  // Finds the ends of rows. A file whose rows end with CR alone is read as one block.
  void scan(std::size_t from) {
    for (std::size_t i = from; i < text_.size(); ++i) {
      if (text_[i] == '"') quoted_ = !quoted_;
      if (!quoted_ && text_[i] == '\n') row_ends_.push_back(i + 1);
    }
  }

  std::unique_ptr<CsvTable> table_of(std::size_t end) const {
    return std::make_unique<CsvTable>(
        std::vector<std::uint8_t>(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(end)),
        file_.path(), separator_, start_);
  }

  // Returns the rows up to `end`, or those before the first invalid one, which is reported later.
  // The first three rows decide about a short header: an error in them is reported at once.
  std::unique_ptr<CsvTable> valid_rows(std::size_t end) {
    try {
      return table_of(end);
    } catch (const DataError&) {
      failure_ = std::current_exception();
    }
    const auto is_valid = [&](std::size_t row_end) {
      try {
        table_of(row_end);
        return true;
      } catch (const DataError&) {
        return false;
      }
    };
    const std::size_t fewest = start_.rows == 0 ? 3 : 1;
    if (row_ends_.size() < fewest || !is_valid(row_ends_[fewest - 1]))
      std::rethrow_exception(failure_);
    const auto first = row_ends_.begin() + static_cast<std::ptrdiff_t>(fewest);
    const auto invalid = std::partition_point(first, row_ends_.end(), is_valid);
    return table_of(*(invalid - 1));
  }

  CsvText file_;
  const CsvCoding& coding_;
  char separator_ = ',';
  std::vector<std::uint8_t> text_;
  std::vector<std::size_t> row_ends_;  // offsets in text_
  std::exception_ptr failure_;         // reports the row after those that have been returned
  bool quoted_ = false, at_end_ = false, started_ = false;
  CsvStart start_;
};

// The header of one row with an index is too short, as R's write.table() writes it. That is
// expected of a model whose own table had an index without a name.
CsvStart first_start(const CsvCoding& coding) {
  const std::vector<std::string>& header = coding.selection.header;
  return {.may_have_index = !header.empty() && header[0] == unique_names({""})[0]};
}

class TableRows : public SampleStream {
 public:
  TableRows(const std::string& path, const CsvCoding& coding, const TableAnswers& answers)
      : path_(path),
        coding_(coding),
        like_{.extents = {1, 1, static_cast<std::int64_t>(coding.features)}},
        answers_(answers),
        blocks_(path, coding, first_start(coding),
                answers.kind == TableAnswers::Kind::kNone ? Pipes::kRead : Pipes::kReject),
        table_(blocks_.next()),
        cells_(coding) {
    if (answers.kind == TableAnswers::Kind::kFlags) flag_titles_ = coding.selection.label_titles();
    if (coding.selection.header.empty()) {
      find_places();
    } else {
      find_names();
      row_ = 1;
    }
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

 private:
  // The training table had no header: columns are found by position.
  void find_places() {
    answer_columns_ = coding_.selection.labels();
    const std::size_t found = table_->columns();
    const bool without_label = found + answer_columns_.size() == coding_.table_columns &&
                               answers_.kind == TableAnswers::Kind::kNone;
    if (found != coding_.table_columns && !without_label)
      throw DataError(path_ + ": found " + std::to_string(found) + " columns, expected the " +
                      std::to_string(coding_.table_columns) + " of the training table" +
                      (answers_.kind == TableAnswers::Kind::kNone ? ", or those without the label"
                                                                  : ", the label among them"));
    for (const CsvColumn& column : coding_.columns)
      places_.push_back(column.index - (without_label ? labels_before(column.index) : 0));
  }

  std::size_t labels_before(std::size_t column) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(answer_columns_, [&](std::size_t label) { return label < column; }));
  }

  void find_names() {
    std::vector<std::string> given;
    for (std::size_t c = 0; c < table_->columns(); ++c) given.emplace_back(table_->field(0, c));
    for (const CsvColumn& column : coding_.columns)
      places_.push_back(place_of(given, coding_.selection.header[column.index]));
    if (answers_.kind == TableAnswers::Kind::kNone) return;
    // If the option is not given, it names no column, not even the index, which has an empty name.
    const bool named =
        !answers_.column.empty() && std::ranges::find(given, answers_.column) != given.end();
    if (named && answers_.kind != TableAnswers::Kind::kFlags) {
      answer_columns_ = {place_of(given, answers_.column)};
      return;
    }
    for (const std::size_t label : coding_.selection.labels())
      answer_columns_.push_back(place_of(given, coding_.selection.header[label]));
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
      for (std::size_t k = 0; k < flag_titles_.size(); ++k)
        block.flags.push_back(
            read_flag(*table_, answer_columns_[k], row_, *coding_.missing, flag_titles_[k]));
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
                            *coding_.missing, coding_.selection.title(coding_.selection.label));
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
  std::vector<std::size_t> places_;          // for each column of the coding
  std::vector<std::size_t> answer_columns_;  // of the labels or the target
  std::vector<std::string> flag_titles_;     // of the labels of 0 or 1, for messages
  std::vector<double> targets_;              // targets of table_'s rows from first_ on
};

}  // namespace

std::unique_ptr<SampleStream> open_table(const std::string& path, const CsvCoding& coding,
                                         const TableAnswers& answers) {
  return std::make_unique<TableRows>(path, coding, answers);
}

}  // namespace io
