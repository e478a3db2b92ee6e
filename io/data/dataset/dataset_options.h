// Options that select a data set and control how it is loaded.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/data/tables/csv_scan.h"

namespace io {

struct SampleCoding;  // io/data/dataset/sample_coding.h

// The samples that are read for a SampleCoding.
enum class Parts {
  kSplit,    // training and test samples
  kHoldOut,  // only test samples: all rows of a table, a whole text; for sets in two parts the test
             // part, and the other one if it exists
};

// The sets "text", "tinyshakespeare" and "tokens".
struct TextOptions {
  std::int64_t context = 64;         // a sample's length
  std::int64_t stride = 0;           // from one to the next; 0: the length
  std::int64_t vocabulary_size = 0;  // tokens; 0: the highest id + 1
  int token_bits = 0;                // tokens: 16 or 32; 0: as the file says
};

struct ImageFileOptions {
  std::int64_t size = 224;                           // side of the squares that they become
  std::int64_t cache_bytes = std::int64_t{1} << 30;  // kept in memory if a part needs no more
};

enum class CsvHeader { kAuto, kYes, kNo };

struct CsvOptions {
  std::string annotations;  // the file; "": the only one of the directory
  // A name from the header or a number from 1, several as "A,B" for Task::kMultiLabel; "": the last
  std::string label_column;
  CsvHeader header = CsvHeader::kAuto;
  std::string separator = "auto";  // csv_separator.h
  CsvDecimal decimal = CsvDecimal::kAuto;
  std::string missing = "auto";          // csv_missing.h
  std::string columns, ignored_columns;  // "A,B", only these or all but these; one is ""
  double test_share = 0.2;               // below 1
  // The options that this command names. In the coding of a trained model the others are those of
  // its training table: reading_with() of io/data/readers/csv/csv_coding.h.
  struct Given {
    bool separator = false, decimal = false, missing = false, header = false;
    // label_column is of this command's file, not of the training table.
    bool label = false;
    bool any_of_cells() const { return separator || decimal || missing || header; }
  };
  Given given = {};
};

struct ArrayOptions {
  std::optional<std::int64_t> ignored_label = {};  // of positions that have no label
};

struct SyntheticOptions {
  std::array<std::int64_t, 3> shape{28, 28, 1};
  std::int64_t context = 0;  // > 0: texts of this number of tokens instead of images
  std::int64_t size = 10'000,
               classes = 10;  // training samples; the test split has a tenth of them
};

// The prediction for a sample: its class, a number, or 0 or 1 for each of several labels.
enum class Task { kClassification, kRegression, kMultiLabel };

struct DatasetOptions {
  std::string name;        // one of dataset_names()
  std::string directory;   // where the files lie; unused by glyphs and synthetic
  std::uint64_t seed = 0;  // glyphs, synthetic, the split of csv, and the limit
  std::int64_t limit = 0;  // > 0: only so many training samples, of each class its share; of tokens
                           // the first windows (mean and deviation stay those of all)
  std::string class_weights = {};  // in the training loss: set_class_weights()
  TextOptions text;
  ImageFileOptions images;
  // Images and tokens that have both: the part of the test samples, "val" or "test"; "": val, with
  // a warning.
  std::string test_part = {};
  Task task = Task::kClassification;
  CsvOptions csv;
  ArrayOptions arrays = {};
  SyntheticOptions synthetic;
  // How samples become what a model takes; null: that is learned from the training samples.
  std::shared_ptr<const SampleCoding> coding = {};
  Parts parts = Parts::kSplit;
  // Only training samples are needed: the missing test part of a set in two parts is empty.
  bool test_is_optional = false;
};

}  // namespace io
