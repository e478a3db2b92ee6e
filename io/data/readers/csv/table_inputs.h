// Opens a table whose columns are coded as those of another one.
#pragma once

#include <memory>
#include <string>

#include "io/data/samples/sample_stream.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

// The answers that are read beside a table's features.
struct TableAnswers {
  enum class Kind { kNone, kLabels, kTargets };
  Kind kind = Kind::kNone;
  std::string column = {};  // its name in this file's header; else it is found as in training
};
// `coding` outlives it. Throws DataError, naming the row, for an answer that is missing or, of
// targets, no number.
std::unique_ptr<SampleStream> open_table(const std::string& path, const CsvCoding& coding,
                                         const TableAnswers& answers = {});

}  // namespace io
