// Chooses the code of a round.
#include "engine/averaging/codes/lossy_code.h"

#include <cmath>

#include "io/base/text/text_parts.h"

namespace engine {
namespace {

std::int64_t sparse_elements(const LossyOptions& options, std::int64_t round) {
  require(options.ratio > 0 && options.ratio <= 1, "a sparse sum sends a ratio in (0, 1]");
  constexpr std::int64_t kBlock = SparseCode::kBlock;
  const auto last = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::ceil(options.ratio * static_cast<double>(kBlock))), 1, kBlock);
  if (round >= options.warmup) return last;
  int stages = 0;
  while ((kBlock >> 2 * (stages + 1)) > last) ++stages;
  const std::int64_t stage = round * stages / options.warmup;
  return std::max(last, kBlock >> 2 * (stage + 1));
}

}  // namespace

LossyCode code_of_round(const LossyOptions& options, std::int64_t round) {
  if (options.kind == LossyOptions::Kind::kQuantized) return QuantizedCode(options.bits);
  return SparseCode(options.bits, sparse_elements(options, round));
}

std::size_t code_bytes(const LossyOptions& options, std::int64_t count, std::int64_t round) {
  return std::visit([&](const auto& code) { return code_bytes(code, count); },
                    code_of_round(options, round));
}

std::string lossy_text(const LossyOptions& options) {
  if (options.kind == LossyOptions::Kind::kQuantized) return "int" + std::to_string(options.bits);
  std::string text =
      base::number_text("sparse %g, ", options.ratio) + std::to_string(options.bits) + " bits";
  if (options.momentum > 0) text += base::number_text(", momentum %g", options.momentum);
  return text;
}

}  // namespace engine
