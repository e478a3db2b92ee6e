// A data set of samples with labels, all in memory: images as bytes, rows of numbers, or windows of
// a stream of tokens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace io {

class ImageSource;    // io/data/images/image_source.h
struct CsvCoding;     // io/data/readers/csv/csv_coding.h
struct SampleCoding;  // io/data/sources/sample_coding.h

enum class Normalization {
  kUnit,
  kStandard
};  // x/255; then (x/255 - mean) / deviation per channel

enum class SampleKind {
  kImages,    // `samples`, bytes that the loader normalises
  kFeatures,  // `features`, numbers that are standardised already
  kTokens,    // `tokens`: the label of each position is the token after it
};

// What a model predicts where that is a number: (value - mean) / deviation is what it learns.
struct TargetScale {
  std::string name;                // of the column, for users
  double mean = 0, deviation = 1;  // of the training rows, in the column's own unit
  double in_unit(double standardised) const { return mean + deviation * standardised; }
};

// One split (training or test).
struct Dataset {
  SampleKind kind = SampleKind::kImages;
  std::string name;  // "mnist"
  std::array<std::int64_t, 3>
      shape{};  // height, width, channels; features: 1, 1, columns; tokens: context, 1, 1
  std::int64_t classes = 0;           // tokens: the size of the vocabulary; with a target 1
  std::vector<std::uint8_t> samples;  // images: size() * height * width * channels, NHWC
  std::shared_ptr<const ImageSource>
      source;  // images that are read when they are wanted; `samples` is empty then
  std::vector<float> features;       // features: size() * columns
  std::vector<std::int32_t> labels;  // images, features: size()
  std::vector<float> targets;        // instead of labels, where `target` is there: size()
  std::vector<float> mean,
      deviation;  // images: per channel, of the training split scaled to [0, 1]
  std::vector<std::int32_t>
      tokens;  // tokens: the stream; sample i reads `context` of them from i * stride on
  std::int64_t stride = 1;
  std::string
      vocabulary;  // text: the byte of each token id, ascending; empty where tokens are no bytes
  std::vector<std::string> class_names = {};  // by class; empty: they have numbers only
  // Classes that the data have and the model lacks (SampleCoding): their labels follow the model's.
  std::vector<std::string> unknown_classes = {};
  std::optional<TargetScale> target = {};  // features: a number is predicted, not a class
  bool scaled = false;  // images: they come in any size and are scaled and cut to the shape

  // Samples. Windows of tokens must leave room for the label of their last position.
  std::int64_t size() const {
    if (kind != SampleKind::kTokens)
      return static_cast<std::int64_t>(target ? targets.size() : labels.size());
    const std::int64_t room = static_cast<std::int64_t>(tokens.size()) - 1 - shape[0];
    return room < 0 ? 0 : room / stride + 1;
  }
  std::int64_t sample_count() const {
    return shape[0] * shape[1] * shape[2];
  }  // elements of one sample
  std::int64_t positions() const {
    return kind == SampleKind::kTokens ? shape[0] : 1;
  }  // labels of one sample
};

struct DatasetSplits {
  Dataset train, test;
  std::string columns = {};                      // csv: a line that says what each column became
  std::shared_ptr<const CsvCoding> coding = {};  // csv: how other tables are read like this one
  std::vector<std::string> warnings = {};        // lines for the user
  // Lines about classes, categories and characters that the coding lacks (SampleCoding).
  std::vector<std::string> unknown = {};
};

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

// Throws DataError (names the file, what was found and what was expected), MissingFileError (says
// which files were looked for and how to get them) and ConfigError (unknown name, with the
// nearest).
DatasetSplits load_dataset(const DatasetOptions& options);

// Identifies a part of a data set wherever it lies: 32 hex digits (XXH3-128) over all that training
// sees of it: shape, labels and samples (of images that are read when they are wanted, their names
// and sizes), and the names of classes, columns, categories and characters.
struct DataDigest {
  std::string text;
  std::string nameless;  // without the names, as earlier versions stored it
  bool is(const std::string& stored) const { return stored == text || stored == nameless; }
};
DataDigest data_digest(const Dataset& data, const CsvCoding* table = nullptr);

std::vector<std::string> dataset_names();

}  // namespace io
