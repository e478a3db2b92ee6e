// Identifies a data set independently of its location.
#pragma once

#include <string>

#include "io/data/dataset/dataset.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

// The digest of a part of a data set, independent of its location. It has 32 hex digits (XXH3-128)
// over everything that training reads: shape, labels and samples (for images that are read on
// demand, their names and sizes), and the names of classes, columns, categories and characters.
struct DataDigest {
  std::string text;
  std::string nameless;  // without the names, as earlier versions stored it
  bool is(const std::string& stored) const { return stored == text || stored == nameless; }
};
DataDigest data_digest(const Dataset& data, const CsvCoding* table = nullptr);

}  // namespace io
