// The report of a policy that averages by a ReplicaMean.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/sums/replica_mean.h"

namespace engine {

// `bytes_beside`: sent by other exchanges than those of `mean`. The next report has the spread of
// the next average.
inline AveragingReport report_of(ReplicaMean& mean, std::int64_t averagings, std::string coverage,
                                 std::int64_t bytes_beside = 0) {
  AveragingReport report{.averagings = averagings,
                         .bytes_sent = mean.bytes_sent() + bytes_beside,
                         .spread = mean.take_spread(),
                         .coverage = std::move(coverage)};
  mean.measure_spread();
  return report;
}

}  // namespace engine
