// Implements the guard around a backend's communicator.
#include "backends/compose/guard/guarded_communicator.h"

#include <algorithm>

#include "backends/backend_error.h"
#include "backends/compose/guard/guarded_calls.h"

namespace backends {

std::chrono::milliseconds detection_time(std::chrono::milliseconds heartbeat) {
  using std::chrono::seconds;
  return std::clamp<std::chrono::milliseconds>(4 * heartbeat, seconds(2), seconds(60));
}

std::string failure_context(std::string_view backend, int rank, int world_size,
                            const std::string& operation) {
  return "backend " + std::string(backend) + ", rank " + std::to_string(rank) + " of " +
         std::to_string(world_size) + ", " + operation + ": ";
}

std::unique_ptr<Communicator> guard(std::unique_ptr<Communicator> inner, Guard by) {
  return std::make_unique<GuardedCalls<Communicator>>(std::move(inner), std::move(by));
}

void raise_explained(FailureDetector& watch, std::chrono::milliseconds wait,
                     const std::string& context, const std::string& error) {
  const std::optional<GroupFailure> failure = watch.known_failure(wait);
  if (failure && failure->mismatch) failure->raise(context);
  // The detected failure may be a consequence of another rank's; the error seen here may name that
  // rank.
  std::string what = context + error;
  if (failure && error.find(failure->text) == std::string::npos)
    what = context + failure->text + " (seen here: " + error + ")";
  if (watch.interrupted()) throw InterruptedError(what);
  if (failure) throw LostPeerError(what);
  throw PeerError(what);
}

}  // namespace backends
