// Windows of a stream of tokens as samples.
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
#include "io/data/samples/token_stream.h"

namespace io {

struct TokenSamples {
  static constexpr SampleTraits kTraits{
      .name = "tokens", .noun = "tokens", .unit = "tokens", .single = false};

  std::int64_t context = 0;  // tokens per window
  std::int64_t stride = 1;   // distance between windows
  TokenStream tokens = {};   // window i starts at i * stride

  // Windows leave room for the label of their last position.
  std::int64_t windows() const {
    const std::int64_t room = tokens.size() - 1 - context;
    return room < 0 ? 0 : room / stride + 1;
  }

  std::array<std::int64_t, 3> shape() const { return {context, 1, 1}; }
  void set_shape(const std::array<std::int64_t, 3>& shape) { context = shape[0]; }
  std::vector<std::int64_t> model_shape() const { return {context}; }
  std::int64_t positions() const { return context; }
  std::uint64_t bytes() const { return tokens.bytes(); }
  std::vector<float> statistics() const { return {}; }
  void add_to(base::StreamDigest& digest) const { tokens.add_to(digest); }
  TokenSamples like() const { return {.context = context}; }
  // REQUIRES: these are the first windows.
  void keep(std::span<const std::int64_t> chosen);
  std::string intake() const { return kTraits.noun; }
  std::unique_ptr<BatchPart> batch_part(const Preparation& how) const;

  bool has_bytes() const { return false; }
};

}  // namespace io
