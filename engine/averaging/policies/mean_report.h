// The report of a policy that averages by a ReplicaMean.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/sums/replica_mean.h"

namespace engine {

// `bytes_beside`: sent by other exchanges than those of `mean`.
inline AveragingReport report_of(ReplicaMean& mean, std::int64_t averagings, std::string coverage,
                                 std::int64_t bytes_beside = 0) {
  return {.averagings = averagings,
          .bytes_sent = mean.bytes_sent() + bytes_beside,
          .spread = mean.next_spread(),
          .coverage = std::move(coverage)};
}

}  // namespace engine
