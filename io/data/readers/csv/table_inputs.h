// Opens a table whose columns are coded like those of another one.
#pragma once

#include <memory>
#include <string>

#include "io/data/samples/sample_stream.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

// The answers that are read in addition to a table's features.
struct TableAnswers {
  enum class Kind { kNone, kLabels, kTargets, kFlags };
  Kind kind = Kind::kNone;
  // Its name in this file's header; otherwise, and for flags, columns are found as in training.
  std::string column = {};
};
// `coding` must outlive the stream. A table without answers is read once, so it may be a pipe.
// Throws DataError with the row for an answer that is missing (unless it is a flag), for a target
// that is not a number, and for a flag that is not 0 or 1.
std::unique_ptr<SampleStream> open_table(const std::string& path, const CsvCoding& coding,
                                         const TableAnswers& answers = {});

}  // namespace io
