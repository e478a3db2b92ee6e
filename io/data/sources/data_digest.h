// Identifies a data set, wherever it lies.
#pragma once

#include <string>

#include "io/data/dataset/splits.h"

namespace io {

// Identifies a part of a data set wherever it lies: 32 hex digits (XXH3-128) over all that training
// sees of it: shape, labels and samples (of images that are read when they are wanted, their names
// and sizes), and the names of classes, columns, categories and characters.
struct DataDigest {
  std::string text;
  std::string nameless;  // without the names, as earlier versions stored it
  bool is(const std::string& stored) const { return stored == text || stored == nameless; }
};
DataDigest data_digest(const Dataset& data, const CsvCoding* table = nullptr);

}  // namespace io
