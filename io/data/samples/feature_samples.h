// Rows of standardized numbers as samples.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/data/samples/batch.h"
#include "io/data/samples/sample_traits.h"

namespace io {

struct FeatureSamples {
  static constexpr SampleTraits kTraits{
      .name = "features", .noun = "rows of a table", .unit = "rows", .single = true};

  std::array<std::int64_t, 3> extents{1, 1, 0};  // each sample of a table is one row of columns
  std::vector<float> values = {};                // size * the product of the extents

  std::array<std::int64_t, 3> shape() const { return extents; }
  void set_shape(const std::array<std::int64_t, 3>& shape) { extents = shape; }
  std::vector<std::int64_t> model_shape() const { return {extents.begin(), extents.end()}; }
  std::int64_t positions() const { return 1; }
  std::uint64_t bytes() const { return values.size() * sizeof(float); }
  std::vector<float> statistics() const { return {}; }
  void add_to(base::StreamDigest& digest) const;
  FeatureSamples like() const { return {.extents = extents}; }
  void keep(std::span<const std::int64_t> chosen);
  std::string intake() const { return kTraits.noun; }
  std::unique_ptr<BatchPart> batch_part(const Preparation& how) const;

  bool has_bytes() const { return false; }
  std::size_t width() const {
    return static_cast<std::size_t>(extents[0] * extents[1] * extents[2]);
  }
};

}  // namespace io
