// Which token comes next: drawn from a model's logits, the same for the same seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

struct TokenChoice {
  double temperature = 1;  // logits are divided by it; 0: always the first of the largest logits
  std::int64_t top_k =
      0;  // only the k largest logits (and what equals the k-th) have a chance; 0: all
  std::uint64_t seed = 0;
};

// The token at `place` of the text: depends on the logits, the choice and the place alone. Softmax
// and drawing in double. Throws io::DataError for logits that are no finite numbers. REQUIRES: not
// empty.
std::int32_t choose_token(std::span<const double> logits, const TokenChoice& choice,
                          std::uint64_t place);

// Ids of the bytes of `text` in `vocabulary` (the bytes in the order of their ids). Throws
// UsageError that names the characters that are not in it.
std::vector<std::int32_t> token_ids(std::string_view text, std::string_view vocabulary);

}  // namespace tools
