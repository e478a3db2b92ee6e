// Ranks that are threads of this process.
#pragma once

#include <functional>
#include <memory>

#include "backends/group.h"

namespace tools {

// Runs body(0) ... body(count - 1), each in a thread of its own, and waits for all. Returns the
// first code that is not 0; rethrows the first exception, but one that only says that another rank
// ended gives way to that rank's own.
int run_worker_threads(int count, const std::function<int(int index)>& body);

// The same with ranks that meet in this process (backend inproc).
int run_inproc_ranks(int count, int timeout_ms,
                     const std::function<int(std::unique_ptr<backends::Group>)>& body);

}  // namespace tools
