// The guard around a backend's communicator.
#include "backends/compose/guard/guarded_communicator.h"

#include "backends/backend_error.h"
#include "backends/compose/guard/guarded_calls.h"

namespace backends {

constexpr auto kDetectionTime = std::chrono::seconds(2);

std::string failure_context(std::string_view backend, int rank, int world_size,
                            const std::string& operation) {
  return "backend " + std::string(backend) + ", rank " + std::to_string(rank) + " of " +
         std::to_string(world_size) + ", " + operation + ": ";
}

std::unique_ptr<Communicator> guard(std::unique_ptr<Communicator> inner, Guard by) {
  return std::make_unique<GuardedCalls<Communicator>>(std::move(inner), std::move(by));
}

std::string explain_failure(FailureWatch& watch, std::string_view backend, int rank, int world_size,
                            const std::string& operation, const std::string& error) {
  const std::optional<std::string> failure = watch.known_failure(kDetectionTime);
  // The detected failure may be a consequence of another rank's; the error seen here may name that
  // rank.
  std::string what = error;
  if (failure && error.find(*failure) == std::string::npos)
    what = *failure + " (seen here: " + error + ")";
  return failure_context(backend, rank, world_size, operation) + what;
}

}  // namespace backends
