// Carries the counts of averagings and the bytes sent from one policy of a run to the next.
#pragma once

#include "engine/averaging/policies/averaging_policy.h"

namespace engine {

struct CarriedCounts {
  PolicyCounters of_policy;  // what the policy restores
  PolicyCounters others;     // averagings that it does not make, for later starts
};
// `saved`: the counters of the averaging in a checkpoint, of any policy; `policy`: those of the
// policy that continues. Averagings of gradients and of parameters are counted apart; bytes are
// those of all.
CarriedCounts carry_counts(const PolicyCounters& saved, const PolicyCounters& policy);

// Restores the counters of a checkpoint of step `steps` by that rule, and keeps those of others in
// the policy.
void restore_counts(const PolicyCounters& saved, std::int64_t steps, AveragingPolicy& policy);

// Returns the policy's report, with the averagings that the run made by other policies.
AveragingReport take_report_of_run(AveragingPolicy& policy);

}  // namespace engine
