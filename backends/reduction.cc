// Selects the loops for this processor; folds more than two parts in strips that fit the
// first-level cache.
#include "backends/reduction.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "backends/backend_error.h"
#include "backends/reduction_loops.h"
#include "io/base/machine/cpu_features.h"

namespace backends {
namespace {

using PairLoop = void (*)(void*, const void*, const void*, std::size_t, DType, ReduceOp);

PairLoop choose_pair_loop() {
#if defined(__x86_64__)
  const base::CpuFeatures cpu = base::cpu_features();
#if ENGINE_HAS_AVX512
  if (cpu.avx512) return &reduction_avx512::reduce_pair;
#endif
  if (cpu.avx2) return &reduction_avx2::reduce_pair;
#endif
  return &reduction_baseline::reduce_pair;
}
const PairLoop kPairLoop = choose_pair_loop();

void require_reducible(DType type) {
  if (type == DType::kI32) [[unlikely]]
    throw Error("internal: i32 is not reduced");
}

constexpr std::size_t kStripBytes = 8 << 10;

}  // namespace

void reduce_pair(void* out, const void* a, const void* b, std::size_t count, DType type,
                 ReduceOp op) {
  require_reducible(type);
  kPairLoop(out, a, b, count, type, op);
}

void reduce_into(void* into, const void* from, std::size_t count, DType type, ReduceOp op) {
  require_reducible(type);
  kPairLoop(into, into, from, count, type, op);
}

void reduce_parts(void* out, const void* const* parts, int part_count, std::size_t count,
                  DType type, ReduceOp op) {
  require_reducible(type);
  const std::size_t width = size_of(type);
  if (part_count == 2) return kPairLoop(out, parts[0], parts[1], count, type, op);
  if (part_count == 1) {
    if (count > 0 && out != parts[0]) std::memcpy(out, parts[0], count * width);
    return;
  }
  alignas(64) char strip[kStripBytes];
  const std::size_t most = kStripBytes / width;
  for (std::size_t at = 0; at < count; at += most) {
    const std::size_t n = count - at < most ? count - at : most;
    const auto part = [&](int p) { return static_cast<const char*>(parts[p]) + at * width; };
    kPairLoop(strip, part(0), part(1), n, type, op);
    for (int p = 2; p < part_count - 1; ++p) kPairLoop(strip, strip, part(p), n, type, op);
    kPairLoop(static_cast<char*>(out) + at * width, strip, part(part_count - 1), n, type, op);
  }
}

SumSlices::SumSlices(int ranks, std::span<const std::uint32_t> weights) : ranks_(ranks) {
  if (weights.empty()) return;
  if (weights.size() != static_cast<std::size_t>(ranks))
    throw ConfigurationError(std::to_string(weights.size()) + " weights of slices for " +
                             std::to_string(ranks) + " ranks: expected one for each");
  std::uint64_t total = 0, sum = 0;
  for (const std::uint32_t weight : weights) total += weight;
  if (total == 0)
    throw ConfigurationError("the weights of slices are all 0: expected a sum above 0");
  for (const std::uint32_t weight : weights) {
    sum += weight;
    const std::size_t begin = ends_.empty() ? 0 : ends_.back();
    ends_.push_back(sum * kWhole / total);
    largest_ = std::max(largest_, ends_.back() - begin);
  }
}

ElementRange SumSlices::of(std::size_t count, int rank) const {
  if (are_equal()) return slice_of(count, rank, ranks_);
  const auto r = static_cast<std::size_t>(rank);
  return {r == 0 ? 0 : base::part_begin(count, ends_[r - 1], kWhole),
          base::part_begin(count, ends_[r], kWhole)};
}

std::size_t SumSlices::count_for(std::size_t most) const {
  return are_equal() ? most * static_cast<std::size_t>(ranks_) : most * kWhole / largest_;
}

}  // namespace backends
