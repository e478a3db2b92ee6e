// Rows of a CSV file, read in blocks, as the columns of another table were learnt.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "io/base/io_error.h"
#include "io/base/nearest.h"
#include "io/data/sources/csv/csv_coding.h"
#include "io/data/sources/csv/csv_header.h"
#include "io/data/sources/csv/csv_separator.h"
#include "io/data/sources/csv/csv_table.h"
#include "io/data/sources/csv/csv_text.h"
#include "io/data/sources/inputs/sample_stream.h"

namespace io {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20, kLongestRow = std::size_t{64} << 20;

// The file as tables of whole rows.
class TableBlocks {
 public:
  TableBlocks(const std::string& path, std::string separator)
      : file_(path), wanted_(std::move(separator)) {}

  // Null: no more.
  std::unique_ptr<CsvTable> next() {
    std::size_t end = 0;
    while (!at_end_ && end == 0) {
      const std::size_t before = text_.size();
      if (before > kLongestRow)
        throw DataError(file_.path() + ": line " + std::to_string(start_.lines + 1) +
                        " begins a row of more than 64 MiB: is a quote never closed?");
      at_end_ = !file_.append(kBlock, text_);
      scan(before);
      end = last_end_;
    }
    if (at_end_) end = text_.size();
    if (end == 0 && started_) return nullptr;
    if (!started_)
      separator_ =
          csv_separator(wanted_, {reinterpret_cast<const char*>(text_.data()), text_.size()});
    started_ = true;
    const auto cut = text_.begin() + static_cast<std::ptrdiff_t>(end);
    std::vector<std::uint8_t> rows(text_.begin(), cut);
    text_.erase(text_.begin(), cut);
    last_end_ = 0;  // what is left holds no end of a row
    auto table = std::make_unique<CsvTable>(std::move(rows), file_.path(), separator_, start_);
    start_ = table->next();
    return table;
  }

 private:
  // Remembers the last end of a row. Rows that end with CR alone come as one block.
  void scan(std::size_t from) {
    for (std::size_t i = from; i < text_.size(); ++i) {
      if (text_[i] == '"') quoted_ = !quoted_;
      if (!quoted_ && text_[i] == '\n') last_end_ = i + 1;
    }
  }

  CsvText file_;
  const std::string wanted_;
  char separator_ = ',';
  std::vector<std::uint8_t> text_;
  std::size_t last_end_ = 0;
  bool quoted_ = false, at_end_ = false, started_ = false;
  CsvStart start_;
};

class TableRows : public SampleStream {
 public:
  TableRows(const std::string& path, const CsvCoding& coding)
      : path_(path), coding_(coding), blocks_(path, coding.separator), table_(blocks_.next()) {
    if (coding.selection.header.empty()) {
      find_places();
    } else {
      find_names();
      row_ = 1;
    }
  }

  void fill(std::int64_t most, Wanted wanted, SampleBlock& block) override {
    while (block.count() < most && table_) {
      if (row_ == table_->rows()) {
        table_ = blocks_.next();
        row_ = 0;
        continue;
      }
      if (wanted == Wanted::kSamples) append(block);
      block.origins.push_back({path_, ++done_});
      ++row_;
    }
  }

 private:
  // The training table had no header: columns have their places.
  void find_places() {
    const std::size_t label = coding_.selection.label, found = table_->columns();
    const bool without_label = found + 1 == coding_.table_columns;
    if (found != coding_.table_columns && !without_label)
      throw DataError(path_ + ": found " + std::to_string(found) + " columns, expected the " +
                      std::to_string(coding_.table_columns) +
                      " of the training table, or one less: without the label");
    for (const CsvColumn& column : coding_.columns)
      places_.push_back(column.index - (without_label && column.index > label ? 1 : 0));
  }

  void find_names() {
    std::vector<std::string> given;
    for (std::size_t c = 0; c < table_->columns(); ++c) given.emplace_back(table_->field(0, c));
    const std::vector<std::string> header = unique_names(given);
    const std::vector<std::string>& trained = coding_.selection.header;
    for (const CsvColumn& column : coding_.columns) {
      const std::string& name = trained[column.index];
      const auto found = std::find(header.begin(), header.end(), name);
      if (found == header.end())
        throw DataError(path_ + ": row 1 names no column '" + name +
                        "', which the model was trained with" + base::did_you_mean(name, header));
      // Of equal names the later ones have another one in both tables, or the model knows one only.
      if (std::count(given.begin(), given.end(), name) > 1 &&
          std::find(trained.begin(), trained.end(), name + ".1") == trained.end())
        throw DataError(path_ + ": several columns are called '" + name + "', expected one");
      places_.push_back(static_cast<std::size_t>(found - header.begin()));
    }
  }

  void append(SampleBlock& block) {
    const std::size_t before = block.features.size();
    block.features.resize(before + coding_.features);
    float* out = block.features.data() + before;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const CsvColumn& column = coding_.columns[i];
      const std::string_view field = table_->field(row_, places_[i]);
      if (!column.encode(field, out))
        throw DataError(table_->place(row_) + ": found '" + std::string(field.substr(0, 40)) +
                        "' in " + coding_.selection.title(column.index) +
                        ", expected a number, as in training");
      out += column.features();
    }
  }

  const std::string path_;
  const CsvCoding& coding_;
  TableBlocks blocks_;
  std::unique_ptr<CsvTable> table_;
  std::size_t row_ = 0;
  std::int64_t done_ = 0;
  std::vector<std::size_t> places_;  // by column of the coding
};

}  // namespace

std::unique_ptr<SampleStream> open_table(const std::string& path, const CsvCoding& coding) {
  return std::make_unique<TableRows>(path, coding);
}

}  // namespace io
