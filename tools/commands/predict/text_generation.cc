// One call of the model for each place of all texts. Texts that have ended stay in the batch.
#include "tools/commands/predict/text_generation.h"

#include <algorithm>
#include <chrono>
#include <span>

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

void add_time(Clock::time_point start, std::int64_t tokens, GenerationRate* rate) {
  if (rate == nullptr) return;
  rate->tokens += tokens;
  rate->seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void generate(models::NextToken& next, const GenerationOptions& options,
              std::vector<std::vector<std::int32_t>> texts,
              const std::function<void(std::size_t text, std::int32_t token)>& added) {
  std::vector<bool> ended(texts.size(), false);
  Clock::time_point start = Clock::now();
  std::int64_t timed = 0;
  for (std::int64_t place = 0; place < options.count && std::ranges::count(ended, false) > 0;
       ++place) {
    const std::vector<models::NextToken::Tokens> windows(texts.begin(), texts.end());
    next.compute(windows);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (ended[i]) continue;
      SamplingOptions sampling = options.sampling;
      sampling.seed += i;
      const auto logits = next.logits_of(i).first(static_cast<std::size_t>(options.size));
      const std::int32_t token = sample_token(logits, sampling, static_cast<std::uint64_t>(place));
      ended[i] = std::ranges::count(options.ends, token) > 0;
      if (ended[i]) continue;
      texts[i].push_back(token);
      added(i, token);
      timed += place > 0 ? 1 : 0;
    }
    if (place == 0) start = Clock::now();
  }
  add_time(start, timed, options.rate);
}

}  // namespace tools
