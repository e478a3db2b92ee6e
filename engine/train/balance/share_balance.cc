// Measures in windows of steps, and changes shares only for a clear difference.
#include "engine/train/balance/share_balance.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "io/base/files/io_error.h"

namespace engine {
namespace {

// A smaller change of a rank's share, relative to its size, is noise.
constexpr double kMinChange = 0.1;
// The mean weight of a rank: fine enough for the smallest change.
constexpr double kMeanWeight = 1000;
// The limit of a share relative to an equal one; rounding to weights must not exceed the sampler's.
constexpr double kLimit = 0.99 * static_cast<double>(io::kMaxShareRatio);

std::string counter_of(int rank) { return "shares." + std::to_string(rank); }

double fraction(const io::BatchShares& shares, std::size_t rank, std::size_t ranks) {
  return shares.are_equal() ? 1 / static_cast<double>(ranks)
                            : shares.fraction(static_cast<int>(rank));
}

}  // namespace

io::BatchShares shares_by_speed(std::span<const double> speeds) {
  const auto ranks = static_cast<double>(speeds.size());
  std::vector<double> shares(speeds.begin(), speeds.end());
  std::vector<bool> limited(speeds.size(), false);
  // Shares above the limit get the limit, and the others the rest. That may lift another one above
  // it, at most once for each rank.
  for (bool changed = true; changed;) {
    changed = false;
    double rest = ranks, sum = 0;
    for (std::size_t r = 0; r < speeds.size(); ++r) limited[r] ? rest -= kLimit : sum += speeds[r];
    for (std::size_t r = 0; r < speeds.size(); ++r) {
      if (limited[r]) continue;
      shares[r] = speeds[r] / sum * rest;
      changed = changed || shares[r] > kLimit;
    }
    for (std::size_t r = 0; r < speeds.size(); ++r)
      if (shares[r] > kLimit) {
        shares[r] = kLimit;
        limited[r] = true;
      }
  }
  std::vector<std::int64_t> weights;
  for (const double share : shares)
    weights.push_back(std::max<std::int64_t>(1, std::llround(share * kMeanWeight)));
  return io::BatchShares(weights);
}

ShareBalance::ShareBalance(const ShareBalanceOptions& options)
    : options_(options), speeds_(static_cast<std::size_t>(options.ranks), 0.0) {}

void ShareBalance::add_step(const MeasuredWork& work) {
  if (++steps_ > 0) measured_ += work;
}

bool ShareBalance::is_complete(std::span<const MeasuredWork> ranks) const {
  double slowest = 0;
  for (const MeasuredWork& rank : ranks) slowest = std::max(slowest, rank.seconds);
  return steps_ >= options_.min_steps &&
         slowest >= (decided_.empty() ? options_.first_seconds : options_.later_seconds);
}

bool ShareBalance::has_moved(const io::BatchShares& shares) const {
  const std::size_t ranks = speeds_.size();
  for (std::size_t r = 0; r < ranks; ++r) {
    const double before = fraction(shares_, r, ranks);
    if (std::abs(fraction(shares, r, ranks) - before) > kMinChange * before) return true;
  }
  return false;
}

bool ShareBalance::update(std::span<const MeasuredWork> ranks) {
  if (!is_complete(ranks)) return false;
  measured_ = {};
  steps_ = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r)  // a rank without samples keeps its last speed
    if (ranks[r].samples > 0) speeds_[r] = ranks[r].samples / std::max(ranks[r].seconds, 1e-9);
  if (std::ranges::find(speeds_, 0.0) != speeds_.end()) return false;
  io::BatchShares shares = shares_by_speed(speeds_);
  if (!has_moved(shares)) return false;
  shares_ = std::move(shares);
  decided_ = speeds_;
  steps_ = -1;
  return true;
}

void ShareBalance::capture(StateCopy& copy) const {
  if (shares_.are_equal()) return;
  for (int r = 0; r < options_.ranks; ++r)
    copy.checkpoint().counters.emplace_back(counter_of(r), shares_.weight(r));
}

void ShareBalance::restore(const io::Checkpoint& checkpoint, const std::string& source,
                           const std::function<void(const std::string&)>&) {
  shares_ = {};
  measured_ = {};
  steps_ = -1;
  decided_.clear();
  std::ranges::fill(speeds_, 0.0);
  const auto find = [&](int rank) {
    return find_counter(checkpoint.counters, counter_of(rank), 0);
  };
  if (checkpoint.world_size != options_.ranks || find(0) == 0) return;
  std::vector<std::int64_t> weights;
  for (int rank = 0; rank < options_.ranks; ++rank) weights.push_back(find(rank));
  try {
    shares_ = io::BatchShares(weights);
  } catch (const io::ConfigError& error) {
    throw io::DataError(source + ": " + error.what());
  }
}

}  // namespace engine
