// Samples the next token from a model's logits, reproducibly by seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0: always the first of the largest logits
  std::int64_t top_k = 0;  // sample from the k largest logits and ties with the k-th; 0: from all
  // Sample from the most likely tokens of those whose probabilities sum to top_p, and ties with the
  // last of them; applied after temperature and top_k. 1: from all.
  double top_p = 1;
  std::uint64_t seed = 0;
};

// Returns the token at position `place` of the text; depends only on the logits, the options and
// the place. Softmax and sampling use double. Throws io::DataError for logits that are not finite.
// REQUIRES: not empty.
std::int32_t sample_token(std::span<const double> logits, const SamplingOptions& options,
                          std::uint64_t place);

// Returns the ids of the bytes of `text` in `vocabulary` (the bytes in the order of their ids).
// Throws UsageError that names unknown characters.
std::vector<std::int32_t> token_ids(std::string_view text, std::string_view vocabulary);

}  // namespace tools
