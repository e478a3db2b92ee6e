// Samples without labels, out of files of any size, a few at a time: what a trained model is given.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/sources/dataset.h"

namespace io {

struct SampleBlock {
  std::vector<std::uint8_t> pixels;  // images: count() * height * width * channels, NHWC
  std::vector<float> features;       // rows of a table: count() * columns, standardised
  struct Origin {
    std::string file;
    std::int64_t sample = 1;  // of the file, from 1
  };
  std::vector<Origin> origins;
  // Rows of a table whose answers were asked for: the labels, or the targets; and each one's place.
  std::vector<std::string> labels;
  std::vector<double> targets;
  std::vector<std::int64_t> rows;  // of the file, from 1, a header counted
  std::int64_t count() const { return static_cast<std::int64_t>(origins.size()); }
};

enum class Wanted {
  kSamples,
  kOrigins,  // without the samples, which somebody else takes: faults in them may go unnoticed
};

class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Adds samples to the block until it has `most`, or there are no more. Throws DataError, naming
  // file and row.
  virtual void fill(std::int64_t most, Wanted wanted, SampleBlock& block) = 0;
  // Lines about categories of the samples up to now that training lacked.
  virtual std::vector<std::string> unknown() const = 0;
};

// The samples of these files, one file after the other, as a model takes them that was trained on
// `splits`. Images: *.png and *.jpg, files in IDX format, CIFAR-10's *.bin where the model's images
// are such; of a folder all its images, in byte order of their paths. A model of folders of images
// gets each as it did in training: scaled, and its middle; others want their own size, and grey of
// one channel is made of colours as Pillow's "L". Tables: columns are found by the names of the
// training table, in any order, and others are passed over; without names by their places, the
// label's being there or not. What was learnt in training is applied. `left_out` takes a
// line for each folder in which there are other files. Throws MissingFileError and DataError,
// naming the file.
std::unique_ptr<SampleStream> open_samples(const std::vector<std::string>& inputs,
                                           const DatasetSplits& splits,
                                           std::vector<std::string>* left_out = nullptr);

// Of one file each; `like` outlives them.
std::unique_ptr<SampleStream> open_image(const std::string& path, const Dataset& like);
std::unique_ptr<SampleStream> open_packed_images(const std::string& path, const Dataset& like);
// The answers that are read beside a table's features.
struct TableAnswers {
  enum class Kind { kNone, kLabels, kTargets };
  Kind kind = Kind::kNone;
  std::string column = {};  // its name in this file's header; else it is found as in training
};
// Throws DataError, naming the row, for an answer that is missing or, of targets, no number.
std::unique_ptr<SampleStream> open_table(const std::string& path, const CsvCoding& coding,
                                         const TableAnswers& answers = {});

}  // namespace io
