// Notices that the relay between this rank and others is stopped. Its host still accepts and
// acknowledges what they send, so that neither side of a connection sees more than silence.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "backends/relay/relay_route.h"

namespace backends {

struct RelayWatchOptions {
  std::shared_ptr<const RelayRoute> route;
  std::chrono::milliseconds heartbeat;  // the time between two questions
  std::chrono::milliseconds limit;      // a relay that is silent for this long is reported
  // Returns true if this rank has waited for others long enough for a question. Any thread.
  std::function<bool()> waits;
  // Called once, on a thread of the watch, with e.g. "the relay at 203.0.113.7:29600 accepts
  // connections and has sent nothing for 3.2 s, as a stopped process does".
  std::function<void(const std::string&)> on_silence;
};

// Asks the relay while this rank waits and has a connection through it. A relay that has ended or
// cannot be reached is not reported: its connections break, and may come back.
class RelayWatch {
 public:
  explicit RelayWatch(RelayWatchOptions options);

 private:
  void run(const std::stop_token& stop) const;

  const RelayWatchOptions options_;
  std::jthread thread_;  // declared last: it uses the options
};

}  // namespace backends
