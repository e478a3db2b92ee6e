// Implements softmax, top-k, and one counter-based random number per token.
#include "tools/commands/predict/token_sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "engine/core/random.h"
#include "io/base/files/io_error.h"
#include "io/base/text/utf8.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

// Returns a uniform number in [0, 1) with 53 bits.
double uniform(std::uint64_t seed, std::uint64_t place) {
  const auto words = engine::philox(engine::stream_key(seed, "sample"), 0, place);
  return static_cast<double>(std::uint64_t{words[0]} << 21 | words[1] >> 11) * 0x1p-53;
}

// Sets the weights after the largest ones that have this part of the sum to 0.
void keep_top_p(double part, std::vector<double>& weights) {
  std::vector<double> sorted = weights;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double missing = part * std::accumulate(sorted.begin(), sorted.end(), 0.0);
  std::size_t last = 0;
  for (; last + 1 < sorted.size() && sorted[last] < missing; ++last) missing -= sorted[last];
  for (double& weight : weights)
    if (weight < sorted[last]) weight = 0;
}

// Returns the UTF-8 character that begins here, or one byte if there is none.
std::string_view character(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length)
    if (base::is_utf8(text.substr(0, length))) return text.substr(0, length);
  return text.substr(0, 1);
}

std::string shown(std::string_view character) {
  if (base::is_utf8(character) &&
      (character.size() > 1 || (character[0] >= 0x20 && character[0] != 0x7F)))
    return "'" + std::string(character) + "'";
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(character[0]);
  return std::string("\\x") + kHex[code >> 4] + kHex[code & 15];
}

}  // namespace

std::int32_t sample_token(std::span<const double> logits, const SamplingOptions& options,
                          std::uint64_t place) {
  for (const double logit : logits)
    if (!std::isfinite(logit))
      throw io::DataError(
          "the model's output is not finite: its weights are damaged or training diverged");
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());
  double least = -std::numeric_limits<double>::infinity();
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(logits.size())) {
    std::vector<double> sorted(logits.begin(), logits.end());
    const auto kth = sorted.begin() + static_cast<std::ptrdiff_t>(options.top_k) - 1;
    std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
    least = *kth;
  }
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    weights[i] = logits[i] < least ? 0 : std::exp((logits[i] - *largest) / options.temperature);
  if (options.top_p < 1) keep_top_p(options.top_p, weights);
  std::vector<double> sums(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) sums[i] = sum += weights[i];
  const double drawn = uniform(options.seed, place) * sum;
  const auto found = std::upper_bound(sums.begin(), sums.end(),
                                      drawn);  // the first sum above it: never of probability 0
  if (found != sums.end()) return static_cast<std::int32_t>(found - sums.begin());
  return static_cast<std::int32_t>(std::lower_bound(sums.begin(), sums.end(), sum) -
                                   sums.begin());  // rounding may reach the end
}

std::vector<std::int32_t> token_ids(std::string_view text, std::string_view vocabulary) {
  std::vector<std::int32_t> ids;
  std::set<std::string> unknown;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view c = character(text.substr(at));
    for (const char byte : c) {
      const std::size_t id = vocabulary.find(byte);
      if (id == std::string_view::npos) unknown.insert(shown(c));
      ids.push_back(static_cast<std::int32_t>(id));
    }
    at += c.size();
  }
  if (unknown.empty()) return ids;
  std::string list;
  for (const std::string& c : unknown) list += (list.empty() ? "" : " ") + c;
  throw UsageError("the prompt has characters that are not among the " +
                   std::to_string(vocabulary.size()) +
                   " of the text that the model was trained on: " + list);
}

}  // namespace tools
