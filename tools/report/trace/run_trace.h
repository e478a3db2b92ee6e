// --trace of a training: from the spans of this rank's threads to one file of all ranks.
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
  bool may_use_device = false;  // the training may turn out to run on a CUDA device
};

// The file in which a rank leaves its own spans where those of all could not be collected: rank 0
// in the file asked for, others in one with ".rankN" in its name.
std::string own_trace_path(const std::string& path, int rank);

// Of one rank, made and ended by the thread that trains it, before the parts of the training are
// made, which look for the thread's tracer.
class RunTrace {
 public:
  // Collective: finds out how the clocks differ. `group` and `communicator` outlive it.
  RunTrace(const TraceOptions& options, backends::Group& group,
           backends::Communicator& communicator);
  // After a failure ranks cannot be relied on: this one writes its own spans alone.
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // `done` steps of the training are done: the next one is recorded if it is one of those asked
  // for. Collective after the last of them: rank 0 collects and writes, and says where. A file that
  // cannot be written is told, and the training goes on.
  void after_step(std::int64_t done);
  // What this device does belongs to the trace, too; told before the first after_step().
  void follow_device(int device);
  // Collective, where the training has ended before the last step asked for.
  void finish(std::int64_t done);
  // Calls after_step(). It must not outlive this.
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
  std::optional<DeviceActivity> activity_;  // from before the session captures graphs
  std::optional<int> device_;
  bool ended_ = false;
  std::int64_t began_ = 0;     // step before the first one recorded
  std::int64_t began_ns_ = 0;  // the time then
  const base::TraceThread thread_;
};

}  // namespace tools
