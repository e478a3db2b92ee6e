// The order of an epoch and how its steps are cut into ranks' slices.
#include "io/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "io/data/split_mix.h"
#include "io/io_error.h"

namespace io {
namespace {

void check(const SamplerOptions& options) {
  constexpr std::int64_t kMaxSize = 0xFFFFFFFF;  // the generator draws positions of 32 bits
  if (options.size < 1 || options.size > kMaxSize) {
    throw ConfigError("a sampler over " + std::to_string(options.size) + " samples: expected 1.." + std::to_string(kMaxSize));
  }
  if (options.global_batch < 1) {
    throw ConfigError("the batch size is " + std::to_string(options.global_batch) + ", expected 1 or more");
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw ConfigError("rank " + std::to_string(options.rank) + " of a world of " + std::to_string(options.world_size) +
                      ": expected 0 <= rank < world size");
  }
}

// Position p of an epoch counts for rank p mod R: this many of the positions before `end` count for the ranks before `rank`.
// A rank's count in [first, end) is then a difference of two, and over any run of positions ranks differ by at most 1.
std::int64_t counted_before(std::int64_t rank, std::int64_t world_size, std::int64_t end) {
  return rank * (end / world_size) + std::min(rank, end % world_size);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options_);
  options_.global_batch = std::min(options_.global_batch, options_.size);  // the same steps, and no product overflows
  order_.resize(static_cast<std::size_t>(options_.size));
  set_epoch(0);
}

std::int64_t Sampler::steps_per_epoch() const { return (options_.size - 1) / options_.global_batch + 1; }

std::int64_t Sampler::global_count(std::int64_t step) const {
  return std::min(options_.global_batch, options_.size - step * options_.global_batch);
}

Sampler::Slice Sampler::slice(std::int64_t step, int rank) const {
  if (step < 0 || step >= steps_per_epoch()) {
    throw std::out_of_range("step " + std::to_string(step) + " of an epoch of " + std::to_string(steps_per_epoch()));
  }
  const std::int64_t first = step * options_.global_batch, end = first + global_count(step);
  const auto before = [&](std::int64_t r) {  // samples of this step on the ranks before r
    return counted_before(r, options_.world_size, end) - counted_before(r, options_.world_size, first);
  };
  return {first + before(rank), before(rank + 1) - before(rank)};
}

std::int64_t Sampler::local_count(std::int64_t step) const { return local_count(step, options_.rank); }

std::int64_t Sampler::local_count(std::int64_t step, int rank) const { return slice(step, rank).count; }

std::int64_t Sampler::max_local_count() const {
  std::int64_t highest = 0;  // counts of full steps repeat after at most world_size steps
  const std::int64_t steps = std::min<std::int64_t>(steps_per_epoch(), options_.world_size);
  for (std::int64_t step = 0; step < steps; ++step) highest = std::max(highest, local_count(step));
  return highest;
}

void Sampler::set_epoch(std::int64_t epoch) {
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  if (!options_.shuffle) return;
  // Fisher-Yates. Checkpoints count on this order: a change of it breaks resuming in the middle of an epoch.
  SplitMix random(options_.seed, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[random.below(static_cast<std::uint32_t>(i) + 1)]);
  }
}

std::span<const std::int64_t> Sampler::indices(std::int64_t step) const {
  const Slice part = slice(step, options_.rank);
  return std::span(order_).subspan(static_cast<std::size_t>(part.first), static_cast<std::size_t>(part.count));
}

}  // namespace io
