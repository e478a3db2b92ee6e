// Samples without labels, out of files of any size, a few at a time: what a trained model is given.
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
    std::int64_t sample = 1;  // of the file, from 1
  };
  std::vector<Origin> origins;
  // Rows of a table whose answers were asked for: the labels, or the targets; and each one's place.
  std::vector<std::string> labels;
  std::vector<double> targets;
  std::vector<std::int64_t> rows;  // of the file, from 1, a header counted
  std::int64_t count() const { return static_cast<std::int64_t>(origins.size()); }

  // The samples, to which a stream of this kind adds. An empty block takes over what `like` states.
  template <class Kind>
  Kind& samples_like(const Kind& like) {
    if (origins.empty()) samples = like.like();
    return std::get<Kind>(samples);
  }
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

}  // namespace io
