// A class for each position of a sample, such as each pixel of an image or each token of a text.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/data/samples/batch.h"
#include "io/data/samples/sample_traits.h"
#include "io/data/samples/samples.h"

namespace io {

struct PositionLabels {
  static constexpr LabelTraits kTraits{
      .labels = "a class for each position", .classes = true, .perplexity = false};
  // The id of a position without a label, which no loss and no score includes.
  static constexpr std::int32_t kIgnored = std::numeric_limits<std::int32_t>::min();

  std::vector<std::int64_t> extents;   // of a sample's positions: height and width, or the length
  std::vector<std::int32_t> ids = {};  // [samples, extents...]: below `count`, or kIgnored
  std::int64_t count = 0;              // number of classes

  // For each class, the weight of its positions in the training loss; empty: 1 each.
  std::vector<double> weights = {};

  std::int64_t positions() const;  // of a sample
  std::int64_t size(const Samples&) const { return std::ssize(ids) / positions(); }
  std::int64_t classes() const { return count; }
  // Returns the number of positions of all samples that have a label.
  std::int64_t labelled() const;
  // Returns the weight of each sample in means over positions; empty: all are equal.
  std::vector<double> loss_weights() const;
  std::uint64_t bytes() const { return ids.size() * sizeof(std::int32_t); }
  void add_to(base::StreamDigest& digest) const;
  PositionLabels like() const { return {.extents = extents, .count = count}; }
  std::vector<std::int64_t> choose(std::int64_t wanted, std::uint64_t seed) const;
  void keep(std::span<const std::int64_t> chosen);
  std::unique_ptr<BatchPart> batch_part(const std::string& set, const Samples& samples) const;
};

}  // namespace io
