// Opens a table whose columns are coded like those of another one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/data/readers/csv/csv_selection.h"
#include "io/data/samples/sample_stream.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

// The answers that are read in addition to a table's features.
struct TableAnswers {
  enum class Kind { kNone, kLabels, kTargets, kFlags };
  Kind kind = Kind::kNone;
  std::vector<std::string> columns = {};  // the parts of --label-column
  // The option is meant for this file: names of its header, or numbers from 1. Otherwise a single
  // name that the header has counts, and all else is found as in training.
  bool is_named = false;
  // For flags: the model's labels. Columns with a header must have these names, and become flags in
  // this order. Empty: any names.
  std::vector<std::string> labels = {};
};

class TableStream : public SampleStream {
 public:
  // Returns the header of this file, if columns are found by names, and the columns of the answers.
  virtual const CsvSelection& answers() const = 0;
};

// `coding` must outlive the stream. A table without answers is read once, so it may be a pipe.
// Throws DataError with the row for an answer that is missing (unless it is a flag), for a target
// that is not a number, for a flag that is not 0 or 1, and for other flags than the model's.
// Throws ConfigError for named answers as label_columns(), or for one that is an input.
std::unique_ptr<TableStream> open_table(const std::string& path, const CsvCoding& coding,
                                        const TableAnswers& answers = {});

}  // namespace io
