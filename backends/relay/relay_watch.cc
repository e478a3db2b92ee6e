// Implements the thread that asks the relay.
#include "backends/relay/relay_watch.h"

#include <optional>
#include <utility>

#include "io/base/text/text_parts.h"
#include "io/base/threads/stoppable_sleep.h"
#include "io/base/time/deadline.h"

namespace backends {

RelayWatch::RelayWatch(RelayWatchOptions options)
    : options_(std::move(options)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void RelayWatch::run(const std::stop_token& stop) const {
  const double limit = std::chrono::duration<double>(options_.limit).count();
  std::optional<double> silent_since;
  while (base::sleep_unless_stopped(stop, options_.heartbeat)) {
    const double begin = base::steady_seconds();
    if (!options_.route->has_pairs() || !options_.waits() || !options_.route->is_silent()) {
      silent_since.reset();
      continue;
    }
    if (!silent_since) silent_since = begin;
    const double silent = base::steady_seconds() - *silent_since;
    if (silent < limit || stop.stop_requested()) continue;
    return options_.on_silence("the relay at " + to_string(options_.route->relay()) +
                               " accepts connections and has sent nothing for " +
                               base::number_text("%.1f", silent) + " s, as a stopped process does");
  }
}

}  // namespace backends
