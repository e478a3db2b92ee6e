// The next token as the label of each token, for text models.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/data/samples/batch.h"
#include "io/data/samples/sample_traits.h"
#include "io/data/samples/samples.h"

namespace io {

// REQUIRES: the samples are TokenSamples, from which the labels are read.
struct NextTokens {
  static constexpr LabelTraits kTraits{
      .labels = "the next tokens of a stream", .classes = true, .perplexity = true};

  std::int64_t count = 0;       // number of different tokens
  std::string vocabulary = {};  // the byte of each token id, ascending; empty: tokens are not bytes

  std::int64_t size(const Samples& samples) const;
  std::int64_t classes() const { return count; }
  std::uint64_t bytes() const { return 0; }
  void add_to(base::StreamDigest&) const {}  // the samples add themselves
  NextTokens like() const { return *this; }
  std::vector<std::int64_t> choose(std::int64_t wanted, std::uint64_t seed) const;
  void keep(std::span<const std::int64_t>) {}
  std::unique_ptr<BatchPart> batch_part(const std::string& set, const Samples& samples) const;
};

}  // namespace io
