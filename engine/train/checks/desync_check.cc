// Hashes and compares the state, finds the first bad step, and repairs tensors.
#include "engine/train/checks/desync_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/train/replicas/replica_sync.h"
#include "io/base/time/deadline.h"

namespace engine {
namespace {

constexpr double kShareOfStep = 0.005;   // fraction that digests between checks may take
constexpr std::int64_t kMaxPast = 4096;  // number of digests between checks

// The largest group of equal ranks is taken as correct; rank 0's group if several are largest.
DesyncTensor compare_digests(const std::string& name, const std::vector<StateDigest>& of_ranks) {
  DesyncTensor tensor{.name = name, .ranks = {}};
  std::ptrdiff_t most = 0;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    if (std::find(of_ranks.begin(), of_ranks.begin() + static_cast<std::ptrdiff_t>(r),
                  of_ranks[r]) != of_ranks.begin() + static_cast<std::ptrdiff_t>(r))
      continue;  // counted with its group
    const std::ptrdiff_t size = std::count(of_ranks.begin(), of_ranks.end(), of_ranks[r]);
    tensor.tie = size == most || (size < most && tensor.tie);
    if (size > most) tensor.source = static_cast<int>(r);
    most = std::max(most, size);
  }
  if (tensor.tie) tensor.source = 0;
  for (std::size_t r = 0; r < of_ranks.size(); ++r)
    if (of_ranks[r] != of_ranks[static_cast<std::size_t>(tensor.source)])
      tensor.ranks.push_back(static_cast<int>(r));
  return tensor;
}

}  // namespace

DesyncCheck::DesyncCheck(backends::Communicator& communicator, const TrainState& state,
                         const DesyncOptions& options)
    : communicator_(communicator),
      state_(state),
      options_(options),
      max_past_(static_cast<std::size_t>(std::min(options.every, kMaxPast))) {
  require(options.every > 0, "a desync check needs a distance of at least one step");
  const ModelState& model = state.model;
  const auto watch = [this](const std::string& name, const TensorView& view, bool statistic) {
    watched_.push_back({name, static_cast<std::byte*>(view.data), view.bytes(), statistic});
  };
  for (const ModelState::Entry& e : model.entries)
    if (e.kind != ModelState::Kind::kCounter)
      watch(e.name, model.view(e),
            e.kind == ModelState::Kind::kRunning && !options.equal_statistics);
  if (!state.policy.differences().optimizer_states)
    for (const Optimizer::State& s : state.optimizer.state()) {
      // Each rank has the states of its own shard.
      if (state.shares != nullptr && s.role != StateRole::kAverage) continue;
      for (const ModelState::Entry& e : model.entries)
        if (const auto slot = s.buffer->find(e.name);
            e.kind == ModelState::Kind::kParameter && slot)
          watch(std::string(s.name) + "/" + e.name, s.buffer->view(*slot), false);
    }
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  digests_.resize(watched_.size());
  gathered_.resize(watched_.size() * ranks);
  whole_.resize(ranks);
  past_.reserve(max_past_);
}

// Tensors that are not compared now count as zero.
StateDigest DesyncCheck::hash(bool statistics) {
  const HostView view(state_.home, Access::kRead);
  const double begin = base::steady_seconds();
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Watched& w = watched_[i];
    digests_[i] = w.statistic && !statistics ? StateDigest{} : digest(w.data, w.bytes);
  }
  const StateDigest whole = digest(digests_.data(), digests_.size() * sizeof(StateDigest));
  const double seconds = base::steady_seconds() - begin;
  hash_seconds_ = std::min(hash_seconds_, seconds);
  hashing_seconds_ += seconds;
  return whole;
}

const DesyncReport* DesyncCheck::start() {
  last_check_ = state_.progress.global_step;
  report_.last_good = last_check_;
  started_ = last_call_ = base::steady_seconds();
  return state_.policy.is_in_sync() ? compare(/*statistics=*/false) : nullptr;
}

bool DesyncCheck::averages_statistics(bool synchronized) const {
  return synchronized && synchronizes_statistics(state_.buffers) &&
         state_.model.running.bytes() > 0;
}

bool DesyncCheck::compares(bool synchronized) const {
  return state_.policy.is_in_sync() &&
         (averages_statistics(synchronized) ||
          state_.progress.global_step - last_check_ >= options_.every);
}

const DesyncReport* DesyncCheck::after_step(bool synchronized) {
  if (compares(synchronized)) return compare(averages_statistics(synchronized));
  if (options_.remember && state_.policy.is_in_sync()) remember();
  return nullptr;
}

const DesyncReport* DesyncCheck::finish() {
  if (last_check_ == state_.progress.global_step || !state_.policy.is_in_sync()) return nullptr;
  return compare(synchronizes_statistics(state_.buffers));
}

// The distance is a power of two, so that if ranks choose different ones, the steps of one are a
// subset of the other's.
void DesyncCheck::remember() {
  const double step_seconds = base::steady_seconds() - last_call_;
  const double wanted =
      std::clamp(hash_seconds_ / std::max(kShareOfStep * step_seconds, 1e-12), 1.0, 1e9);
  const std::int64_t distance = std::int64_t{1} << static_cast<int>(std::ceil(std::log2(wanted)));
  const std::int64_t step = state_.progress.global_step;
  if (step % distance == 0 && past_.size() < max_past_) past_.push_back({step, hash(false)});
  last_call_ = base::steady_seconds();
}

const DesyncReport* DesyncCheck::compare(bool statistics) {
  const StateDigest own = hash(statistics);
  communicator_.all_gather(&own, sizeof own, whole_.data());
  ++checks_;
  const bool equal =
      std::all_of(whole_.begin(), whole_.end(), [&](const StateDigest& d) { return d == own; });
  if (equal || report_.repaired) {
    report_ = {};
    report_.last_good = equal ? state_.progress.global_step : last_check_;
  }
  if (!equal) {
    ++bad_checks_;
    describe(statistics);
    if (report_.action == OnDesync::kRepair) repair(statistics);
  }
  last_check_ = state_.progress.global_step;
  past_.clear();
  last_call_ = base::steady_seconds();
  return equal ? nullptr : &report_;
}

void DesyncCheck::describe(bool statistics) {
  communicator_.all_gather(digests_.data(), digests_.size() * sizeof(StateDigest),
                           gathered_.data());
  report_.action = options_.action;
  report_.step = state_.progress.global_step;
  report_.compared = std::count_if(watched_.begin(), watched_.end(),
                                   [&](const Watched& w) { return !w.statistic || statistics; });
  report_.tensors.clear();
  report_.ranks.clear();
  report_.tie = false;
  std::vector<StateDigest> of_ranks(whole_.size());
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    for (std::size_t r = 0; r < of_ranks.size(); ++r)
      of_ranks[r] = gathered_[r * watched_.size() + i];
    DesyncTensor tensor = compare_digests(watched_[i].name, of_ranks);
    if (tensor.ranks.empty()) continue;
    report_.tie = report_.tie || tensor.tie;
    report_.ranks.insert(report_.ranks.end(), tensor.ranks.begin(), tensor.ranks.end());
    report_.tensors.push_back(std::move(tensor));
  }
  std::sort(report_.ranks.begin(), report_.ranks.end());
  report_.ranks.erase(std::unique(report_.ranks.begin(), report_.ranks.end()), report_.ranks.end());
  if (report_.first_bad == 0) find_first_bad();  // otherwise an earlier check has found it
}

// Ranks may have kept digests of different steps: only the steps of all ranks are compared.
void DesyncCheck::find_first_bad() {
  report_.first_bad = report_.step;
  std::vector<Past> own(max_past_, Past{-1, {}});
  std::copy(past_.begin(), past_.end(), own.begin());
  std::vector<Past> all(own.size() * whole_.size());
  communicator_.all_gather(own.data(), own.size() * sizeof(Past), all.data());
  for (const Past& mine : own) {
    if (mine.step < 0) return;
    std::size_t have = 0, same = 0;
    for (const Past& other : all) {
      have += other.step == mine.step;
      same += other.step == mine.step && other.digest == mine.digest;
    }
    if (have < whole_.size()) continue;
    if (same < have) {
      report_.first_bad = mine.step;
      return;
    }
    report_.last_good = mine.step;
  }
}

void DesyncCheck::repair(bool statistics) {
  const HostView view(state_.home, Access::kWrite);
  std::size_t at = 0;
  for (const DesyncTensor& tensor : report_.tensors) {  // in the order of watched_
    while (watched_[at].name != tensor.name) ++at;
    const Watched& w = watched_[at];
    broadcast_blocks(communicator_, w.data, w.bytes, tensor.source);
  }
  const StateDigest own = hash(statistics);
  communicator_.all_gather(&own, sizeof own, whole_.data());
  const auto other = std::find_if(whole_.begin(), whole_.end(),
                                  [&](const StateDigest& d) { return d != whole_.front(); });
  if (other != whole_.end())
    throw DesyncError("after the repair rank " + std::to_string(other - whole_.begin()) +
                      " still differs from rank 0; " +
                      to_string(report_, communicator_.world_size()));
  report_.repaired = true;
}

std::string DesyncCheck::summary() const {
  char share[64];
  std::snprintf(share, sizeof share, " (hashing took %.2g %% of the time)",
                100 * hashing_seconds_ / std::max(base::steady_seconds() - started_, 1e-9));
  return "compared " + std::to_string(checks_) + (checks_ == 1 ? " time, " : " times, ") +
         (bad_checks_ == 0 ? "always equal" : "different in " + std::to_string(bad_checks_)) +
         share;
}

}  // namespace engine
