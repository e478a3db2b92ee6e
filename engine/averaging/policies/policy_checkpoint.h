// Defines the state of an averaging policy that a checkpoint stores.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/averaging/sums/policy_state.h"

namespace engine {

using PolicyCounters = std::vector<std::pair<std::string, std::int64_t>>;

// Returns the counter of that name, or `fallback`.
std::int64_t find_counter(const PolicyCounters& counters, std::string_view name,
                          std::int64_t fallback);

// The state that may differ between ranks even after AveragingPolicy::synchronize(); a checkpoint
// then stores it for every rank.
struct RankDifferences {
  bool optimizer_states = false, parameters = false;
};

class PolicyCheckpoint {
 public:
  virtual ~PolicyCheckpoint() = default;
  // "updates" is the number of end_step() calls, i.e. the global step; a checkpoint of any other
  // policy contains it as well.
  virtual PolicyCounters counters() const { return {}; }
  virtual void restore_counters(const PolicyCounters&) {}
  virtual std::vector<PolicyState> state() { return {}; }
  virtual RankDifferences differences() const { return {}; }

  // Counts of averagings that the run made by other policies, which a checkpoint stores beside the
  // counters.
  const PolicyCounters& other_counts() const { return other_counts_; }
  void set_other_counts(PolicyCounters counts) { other_counts_ = std::move(counts); }

 private:
  PolicyCounters other_counts_;
};

}  // namespace engine
