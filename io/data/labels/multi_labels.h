// Several labels of 0 or 1 for each sample.
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

struct MultiLabels {
  static constexpr LabelTraits kTraits{
      .labels = "several labels of 0 or 1", .classes = false, .perplexity = false};

  std::vector<std::string> names;  // of the labels
  // [samples, labels]: 1 or 0, or NaN for a label that is unknown, which no loss includes.
  std::vector<float> values = {};
  // For each label, the weight of its positives in the training loss; empty: 1 each.
  std::vector<double> positive_weights = {};

  std::int64_t size(const Samples&) const;
  std::int64_t classes() const { return static_cast<std::int64_t>(names.size()); }
  // Returns the number of labels of all samples, or of one, that are known.
  std::int64_t known() const;
  std::int64_t known(std::int64_t sample) const;
  std::uint64_t bytes() const { return values.size() * sizeof(float); }
  void add_to(base::StreamDigest& digest) const;
  MultiLabels like() const { return {.names = names}; }
  std::vector<std::int64_t> choose(std::int64_t wanted, std::uint64_t seed) const;
  void keep(std::span<const std::int64_t> chosen);
  std::unique_ptr<BatchPart> batch_part(const std::string& set, const Samples& samples) const;
};

}  // namespace io
