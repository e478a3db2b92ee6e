// The policy that averages parameters without waiting for late ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/communicator.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/policies/outer_options.h"
#include "engine/averaging/policies/sync_schedule.h"
#include "engine/averaging/stale/stale_options.h"
#include "engine/core/parameter_buffer.h"

namespace engine {

struct StaleAveragingOptions {
  std::string name = "diloco";
  SyncSchedule schedule;
  std::optional<OuterOptions> outer;  // not over the inner rate
  StaleOptions stale;
};
// As make_parameter_averaging(), but an averaging takes place without the ranks that are late. Such
// a rank ends its step, continues from the result of the last averaging at the step of the others,
// and its change joins the next averaging. At most `max_behind` averagings close without a rank's
// change, then all ranks wait for it: stale synchronous parallel (Ho et al., 2013). synchronize()
// waits for all ranks. If no rank is late, the bits are those of make_parameter_averaging().
std::unique_ptr<AveragingPolicy> make_stale_averaging(backends::Communicator& communicator,
                                                      ParameterBuffer& parameters,
                                                      const StaleAveragingOptions& options);

}  // namespace engine
