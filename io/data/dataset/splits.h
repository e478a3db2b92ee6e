// The two parts of a data set, for training and for testing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset/dataset.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

struct DatasetSplits {
  Dataset train, test;
  std::string columns = {};                      // csv: a line that describes the coding of each
                                                 // column
  std::shared_ptr<const CsvCoding> coding = {};  // csv: the coding for reading other tables like
                                                 // this one
  std::vector<std::string> warnings = {};        // lines for the user
  // "val" if val and test exist and DatasetOptions::test_part names none of them; else "".
  std::string test_part = {};
  // Lines about classes, categories and characters that the coding (SampleCoding) does not have,
  // and about missing values and digits in groups.
  std::vector<std::string> unknown = {};
};

}  // namespace io
