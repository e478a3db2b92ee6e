// Continues texts token by token with a text model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/next_token.h"
#include "tools/commands/predict/token_sampling.h"

namespace tools {

// The tokens that calls have added after the first of each text, which costs the whole prompt, and
// their time.
struct GenerationRate {
  std::int64_t tokens = 0;
  double seconds = 0;
};

struct GenerationOptions {
  std::int64_t count = 0;  // tokens to add, at most
  SamplingOptions sampling;
  std::vector<std::int32_t> ends = {};  // these tokens end a text, and are not part of it
  std::int64_t size = 0;                // only ids below this are sampled
  GenerationRate* rate = nullptr;       // each call adds to it; null: not measured
};

// Adds tokens to all texts at once and calls added(text, token) for each. Text i has the seed
// sampling.seed + i, and becomes what it would become alone (NextToken::compute()). Throws as
// NextToken::compute() and sample_token() do. REQUIRES: there are at most as many texts as `next`
// has.
void generate(models::NextToken& next, const GenerationOptions& options,
              std::vector<std::vector<std::int32_t>> texts,
              const std::function<void(std::size_t text, std::int32_t token)>& added);

}  // namespace tools
