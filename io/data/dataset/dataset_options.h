// Options that say which data set is loaded, and how.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace io {

struct SampleCoding;  // io/data/dataset/sample_coding.h

// Which samples are read for a SampleCoding.
enum class Parts {
  kSplit,    // those for training and those for testing
  kHoldOut,  // for testing only: all rows of a table, a whole text; of sets that lie in two parts
             // the one for testing, and the other if it is there
};

struct DatasetOptions {
  std::string name;        // one of dataset_names()
  std::string directory;   // where the files lie; unused by glyphs and synthetic
  std::uint64_t seed = 0;  // glyphs, synthetic, the split of csv, and the limit
  std::int64_t limit = 0;  // > 0: only so many training samples, of each class its share; of tokens
                           // the first windows (mean and deviation stay those of all)
  std::array<std::int64_t, 3> synthetic_shape{28, 28, 1};
  std::int64_t synthetic_context = 0;  // > 0: texts of so many tokens instead of images
  std::int64_t synthetic_size = 10'000,
               synthetic_classes = 10;  // training samples; the test split has a tenth of them
  std::int64_t context = 64,
               text_stride =
                   0;  // text, tokens: a sample's length; from one to the next (0: the length)
  std::int64_t vocabulary_size = 0;  // tokens; 0: the highest id + 1
  int token_bits = 0;                // tokens: 16 or 32; 0: as the file says
  std::int64_t image_size = 224;     // images: side of the squares that they become
  std::int64_t image_cache_bytes = std::int64_t{1}
                                   << 30;  // images: kept in memory if a part needs no more
  std::string annotations,
      label_column;  // csv: the file; a name from the header or a number from 1, "": the last
  std::string csv_header = "auto";       // csv: auto, yes or no
  std::string csv_separator = "auto";    // csv_separator.h
  std::string csv_decimal = "auto";      // csv: auto, point or comma; csv_scan.h
  std::string csv_missing = "auto";      // csv_missing.h
  std::string columns, ignored_columns;  // csv: "A,B", only these or all but these; one is ""
  double test_share = 0.2;               // csv: below 1
  bool regression = false;               // csv: the label column has numbers to predict
  // How samples become what a model takes; null: that is learned from the training samples.
  std::shared_ptr<const SampleCoding> coding = {};
  Parts parts = Parts::kSplit;
};

}  // namespace io
