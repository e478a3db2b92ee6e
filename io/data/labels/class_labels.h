// Class labels: one class id per sample.
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

struct ClassLabels {
  static constexpr LabelTraits kTraits{.labels = "classes", .classes = true, .perplexity = false};

  std::vector<std::int32_t> ids = {};   // for each sample
  std::int64_t count = 0;               // number of classes
  std::vector<std::string> names = {};  // for each class; empty: classes have only numbers
  // Classes in the data that the model does not have (SampleCoding): their ids follow the model's.
  std::vector<std::string> unknown = {};

  // For each class, the weight of its samples in the training loss; empty: 1 each.
  std::vector<double> weights = {};

  std::int64_t size(const Samples&) const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t classes() const { return count; }
  std::uint64_t bytes() const { return ids.size() * sizeof(std::int32_t); }
  void add_to(base::StreamDigest& digest) const;
  ClassLabels like() const { return {.count = count, .names = names}; }
  std::vector<std::int64_t> choose(std::int64_t wanted, std::uint64_t seed) const;
  void keep(std::span<const std::int64_t> chosen);
  std::unique_ptr<BatchPart> batch_part(const std::string& set, const Samples& samples) const;
};

}  // namespace io
