// Samples of a NumPy array: numbers as they are, or token ids.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/base/numbers/element_type.h"
#include "io/data/samples/batch.h"
#include "io/data/samples/sample_traits.h"

namespace io {

struct ArraySamples {
  static constexpr SampleTraits kTraits{
      .name = "arrays", .noun = "arrays of numbers", .unit = "samples", .single = true};

  std::array<std::int64_t, 3> extents{1, 1, 0};  // height, width, channels; or tokens, 1, 1
  bool are_tokens = false;
  std::optional<base::DType> dtype = {};  // of the array that was read; none: unknown
  std::vector<float> values = {};         // [samples, extents...], unless they are tokens
  std::vector<std::int32_t> ids = {};     // of tokens, in place of values

  std::array<std::int64_t, 3> shape() const { return extents; }
  void set_shape(const std::array<std::int64_t, 3>& shape) { extents = shape; }
  std::vector<std::int64_t> model_shape() const {
    return are_tokens ? std::vector{extents[0]} : std::vector(extents.begin(), extents.end());
  }
  std::int64_t positions() const { return 1; }
  std::uint64_t bytes() const { return 4 * (values.size() + ids.size()); }
  std::vector<float> statistics() const { return {}; }
  void add_to(base::StreamDigest& digest) const;
  ArraySamples like() const {
    return {.extents = extents, .are_tokens = are_tokens, .dtype = dtype};
  }
  void keep(std::span<const std::int64_t> chosen);
  std::string intake() const { return are_tokens ? "arrays of token ids" : kTraits.noun; }
  std::unique_ptr<BatchPart> batch_part(const Preparation& how) const;

  bool has_bytes() const { return false; }
  std::size_t width() const {
    return static_cast<std::size_t>(extents[0] * extents[1] * extents[2]);
  }
};

}  // namespace io
