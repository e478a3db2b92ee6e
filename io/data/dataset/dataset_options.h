// Options that select a data set and control how it is loaded.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace io {

struct SampleCoding;  // io/data/dataset/sample_coding.h

// The samples that are read for a SampleCoding.
enum class Parts {
  kSplit,    // training and test samples
  kHoldOut,  // only test samples: all rows of a table, a whole text; for sets in two parts the test
             // part, and the other one if it exists
};

struct DatasetOptions {
  std::string name;        // one of dataset_names()
  std::string directory;   // folder of the files; unused by glyphs and synthetic
  std::uint64_t seed = 0;  // for glyphs, synthetic, the split of csv, and the limit
  std::int64_t limit = 0;  // > 0: only that many training samples, stratified by class; for tokens
                           // the first windows (mean and deviation are still those of all)
  std::array<std::int64_t, 3> synthetic_shape{28, 28, 1};
  std::int64_t synthetic_context = 0;  // > 0: texts of that many tokens instead of images
  std::int64_t synthetic_size = 10'000,
               synthetic_classes = 10;  // training samples; the test split has a tenth of them
  std::int64_t context = 64,
               text_stride =
                   0;  // text, tokens: a sample's length; distance between samples (0: the length)
  std::int64_t vocabulary_size = 0;  // tokens; 0: the highest id + 1
  int token_bits = 0;                // tokens: 16 or 32; 0: according to the file
  std::int64_t image_size = 224;     // images: side of the squares that they are scaled to
  std::int64_t image_cache_bytes = std::int64_t{1} << 30;  // images: a part is cached in memory if
                                                           // it needs no more than this
  std::string annotations,
      label_column;  // csv: the file; a name from the header or a number from 1, "" for the last
                     // column
  std::string csv_header = "auto";       // csv: auto, yes or no
  std::string csv_separator = "auto";    // see csv_separator.h
  std::string csv_decimal = "auto";      // csv: auto, point or comma; see csv_scan.h
  std::string csv_missing = "auto";      // see csv_missing.h
  std::string columns, ignored_columns;  // csv: "A,B", use only these or all except these; at least
                                         // one is ""
  double test_share = 0.2;               // csv: below 1
  bool regression = false;               // csv: the label column has regression targets
  // The coding of samples for a model; null: it is learned from the training samples.
  std::shared_ptr<const SampleCoding> coding = {};
  Parts parts = Parts::kSplit;
};

}  // namespace io
