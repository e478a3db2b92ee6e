// Streams samples without labels from files of any size, a few at a time, as input of a trained
// model.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "io/data/samples/samples.h"

namespace io {

struct SampleBlock {
  Samples samples = ImageSamples{};  // the stream's kind
  struct Origin {
    std::string file;
    std::int64_t sample = 1;  // number in the file, from 1
  };
  std::vector<Origin> origins;
  // For rows of a table whose answers were requested: the labels, the targets or the
  // labels of 0 or 1, row by row, and the row numbers.
  std::vector<std::string> labels;
  std::vector<double> targets;
  std::vector<float> flags;
  std::vector<std::int64_t> rows;  // in the file, from 1, counting a header
  std::int64_t count() const { return static_cast<std::int64_t>(origins.size()); }

  // Returns the samples, to which a stream of this kind adds. An empty block takes the properties
  // of `like`.
  template <class Kind>
  Kind& samples_like(const Kind& like) {
    if (origins.empty()) samples = like.like();
    return std::get<Kind>(samples);
  }
};

enum class Wanted {
  kSamples,
  kOrigins,  // without the samples, which are read elsewhere: errors in them may remain undetected
};

class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Adds samples to the block until it has `most`, or there are no more. Throws DataError with file
  // and row.
  virtual void fill(std::int64_t most, Wanted wanted, SampleBlock& block) = 0;
  // Returns lines about categories of the samples so far that training did not have.
  virtual std::vector<std::string> unknown() const = 0;
};

}  // namespace io
