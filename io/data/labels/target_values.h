// Regression targets as labels.
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

// A model learns (value - mean) / deviation.
struct TargetScale {
  std::string name;                // name of the column, for users
  double mean = 0, deviation = 1;  // over the training rows, in the column's own unit
  double in_unit(double standardized) const { return mean + deviation * standardized; }
  float standardized(double value) const { return static_cast<float>((value - mean) / deviation); }
};

struct TargetValues {
  static constexpr LabelTraits kTraits{
      .labels = "numbers to predict", .classes = false, .perplexity = false};

  TargetScale scale;
  std::vector<float> values = {};  // standardized, for each sample

  std::int64_t size(const Samples&) const { return static_cast<std::int64_t>(values.size()); }
  std::int64_t classes() const { return 1; }
  std::uint64_t bytes() const { return values.size() * sizeof(float); }
  void add_to(base::StreamDigest& digest) const;
  TargetValues like() const { return {.scale = scale}; }
  std::vector<std::int64_t> choose(std::int64_t wanted, std::uint64_t seed) const;
  void keep(std::span<const std::int64_t> chosen);
  std::unique_ptr<BatchPart> batch_part(const std::string& set, const Samples& samples) const;
};

}  // namespace io
