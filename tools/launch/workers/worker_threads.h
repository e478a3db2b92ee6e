// Runs ranks as threads of this process.
#pragma once

#include <functional>
#include <memory>

#include "backends/group.h"

namespace tools {

// Runs body(0) ... body(count - 1), each in its own thread, and waits for all. Returns the first
// code that is not 0; rethrows the first exception, but prefers a rank's own exception to one that
// only reports that another rank ended.
int run_worker_threads(int count, const std::function<int(int index)>& body);

// Does the same with ranks that form a group in this process (backend inproc).
int run_inproc_ranks(int count, int timeout_ms,
                     const std::function<int(std::unique_ptr<backends::Group>)>& body);

}  // namespace tools
