// The parameters' part of averagings without late ranks: the mean, the outer step, late changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/averaging/policies/outer_step.h"
#include "engine/averaging/policies/policy_checkpoint.h"
#include "engine/averaging/policies/sync_schedule.h"
#include "engine/averaging/stale/stale_rounds.h"

namespace engine {

// In the sum of a round, a rank on time has its parameters, and a late change d has anchor + d: the
// parameters that the rank would have if it had started from the last result. The functions of
// StaleWork are called by the rounds' thread.
class StaleMean final : public StaleWork {
 public:
  // The references but the schedule must outlive this. `outer`: not over the inner rate.
  StaleMean(backends::Communicator& communicator, ParameterBuffer& parameters,
            const SyncSchedule& schedule, const std::optional<OuterOptions>& outer);

  // Copy the trained parameters of a device to host memory for this object, and back. No copy if
  // `home` is null.
  void fetch_values(StateMath* home) const;
  void store_values(StateMath* home) const;

  // Called before the rounds start, while the parameters are equal on all ranks.
  void start();
  // Replaces the parameters by the result of the round that this rank was on time for.
  void take_result() { copy(start_, parameters_.values); }
  // Keeps the change since the last result that this rank has taken, with its samples, and replaces
  // the parameters by the last result.
  void keep_change(std::int64_t samples);

  std::int64_t offer() override;
  void sum(const StaleRound& round) override;
  void finish(const StaleRound& round) override;

  void add_counters(PolicyCounters& counters) const;
  void restore_counters(const PolicyCounters& counters);
  std::vector<PolicyState> state();
  std::int64_t averagings() const { return averagings_; }
  std::int64_t bytes_sent() const { return bytes_sent_; }
  // Returns e.g. "averaged 6/6 parameters 8 times in 24 steps, with 8 outer steps".
  std::string text(std::int64_t steps) const;

 private:
  std::size_t trained_bytes() const;
  TensorView rows(const FlatBuffer& buffer) const { return buffer.part(0, trained_); }
  // Copies the trained parameters.
  void copy(const FlatBuffer& from, const FlatBuffer& to) const;
  void clear(const FlatBuffer& buffer) const;
  // The result of the last round.
  TensorView anchor() const { return outer_ ? outer_->anchor({0, trained_}) : rows(plain_anchor_); }

  backends::Communicator& communicator_;
  ParameterBuffer& parameters_;
  const SyncSchedule schedule_;
  const std::int64_t trained_;  // elements
  ThreadPool pool_;             // of the rounds' thread
  KernelContext context_;
  ParameterBuffer sum_;      // what is summed, then the mean and the result; memory of outer steps
  FlatBuffer plain_anchor_;  // the last result, if there are no outer steps
  FlatBuffer start_;         // what this rank has trained from
  FlatBuffer kept_;          // late changes that the next exchange of signs offers
  FlatBuffer offered_;       // those that the next round includes
  std::optional<OuterStep> outer_;
  std::int64_t kept_samples_ = 0, offered_samples_ = 0;
  std::int64_t averagings_ = 0, bytes_sent_ = 0;
};

}  // namespace engine
