// Implements --trace of a training run: collects the spans of all ranks' threads in one file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backends/group.h"
#include "engine/train/train_observer.h"
#include "io/base/time/trace.h"
#include "tools/report/trace/clock_offset.h"
#include "tools/report/trace/device_activity.h"

namespace tools {

struct TraceOptions {
  std::string path;
  std::int64_t first_step = 1, last_step = INT64_MAX;  // global steps, counted from 1
  bool may_use_device = false;  // true if the training may run on a CUDA device
};

// Returns the file for a rank's own spans if those of all could not be collected: for rank 0 the
// requested file, for others one with ".rankN" in its name.
std::string own_trace_path(const std::string& path, int rank);

// The trace of one rank, constructed and destroyed by the thread that trains it, before the parts
// of the training are constructed, which look for the thread's tracer.
class RunTrace {
 public:
  // Collective: measures the differences of the clocks. `group` and `communicator` outlive it.
  RunTrace(const TraceOptions& options, backends::Group& group,
           backends::Communicator& communicator);
  // After a failure other ranks may not respond, so this rank writes only its own spans.
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // `done` steps of the training are completed: the next one is recorded if it was requested.
  // Collective after the last of them: rank 0 collects and writes, and prints the path. A file that
  // cannot be written is reported, and the training continues.
  void after_step(std::int64_t done);
  // Adds the activity of this device to the trace; called before the first after_step().
  void follow_device(int device);
  // Collective, if the training has ended before the last requested step.
  void finish(std::int64_t done);
  // Returns an observer that calls after_step(). It must not outlive this.
  std::unique_ptr<engine::TrainObserver> make_observer();

 private:
  void collect(std::int64_t done);
  void add_device_spans();
  void write_own() noexcept;

  const TraceOptions options_;
  backends::Group& group_;
  backends::Communicator& communicator_;
  base::Tracer tracer_;
  const ClockOffset before_;
  std::optional<DeviceActivity> activity_;  // created before the session captures graphs
  std::optional<int> device_;
  bool ended_ = false;
  std::int64_t began_ = 0;     // step before the first recorded one
  std::int64_t began_ns_ = 0;  // the time then
  const base::TraceThread thread_;
};

}  // namespace tools
