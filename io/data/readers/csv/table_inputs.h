// Opens a table whose columns are coded like those of another one.
#pragma once

#include <memory>
#include <string>

#include "io/data/samples/sample_stream.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

// The answers that are read in addition to a table's features.
struct TableAnswers {
  enum class Kind { kNone, kLabels, kTargets };
  Kind kind = Kind::kNone;
  std::string column = {};  // its name in this file's header; otherwise it is found as in training
};
// `coding` must outlive the stream. Throws DataError with the row for an answer that is missing or,
// for targets, not a number.
std::unique_ptr<SampleStream> open_table(const std::string& path, const CsvCoding& coding,
                                         const TableAnswers& answers = {});

}  // namespace io
