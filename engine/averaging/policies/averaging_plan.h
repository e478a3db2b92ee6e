// Describes the averaging of a run before the run starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/averaging/policies/outer_options.h"
#include "engine/averaging/policies/streaming_options.h"
#include "engine/averaging/policies/sync_schedule.h"
#include "engine/core/parameter_buffer.h"

namespace engine {

// An optimizer state that every `every`-th averaging of the schedule includes.
struct StatePlan {
  std::string name;
  std::int64_t every = 1, bytes = 0;
};

struct StreamingPlan {
  std::int64_t fragments = 1, largest_bytes = 0, overlap = 0;
  double mixing = 1;
};
StreamingPlan plan_streaming(const StreamingOptions& options, const FlatBuffer& gradients);

struct PlannedSteps {
  std::int64_t first = 0, of_epoch = 1, total = 0;  // first: completed at the start
  std::int64_t first_of_epochs = 0;                 // EpochSteps::step_of_epoch(0)
  std::int64_t outer_done = 0;                      // outer steps completed at the start
  std::int64_t save_every = 0;  // steps between checkpoints; 0: only at ends of epochs
};

struct AveragingPlan {
  PlannedSteps steps;
  std::int64_t warmup = 0;      // number of first steps that average gradients
  SyncSchedule schedule;        // schedule of parameter averaging, in global steps
  std::int64_t bytes_each = 0;  // payload of one averaging of parameters and of what is averaged
                                // with them
  // The payload of one averaging of all ranks beside one of pairs; 0: the same.
  std::int64_t bytes_at_ends = 0;
  // The part of `bytes_each` that is sent as codes, and its bytes without; "": nothing is.
  std::string compression;  // "int8"
  std::int64_t bytes_compressed = 0, bytes_uncompressed = 0;
  std::int64_t bytes_received = 0;         // by each rank in one averaging, of that part
  bool sparse_beside_momentum = false;     // sparse changes, and outer steps with momentum
  std::vector<StatePlan> states;           // what is averaged along less often
  std::optional<OuterOptions> outer;       // an outer step follows each averaging of the schedule
  std::optional<StreamingPlan> streaming;  // each averaging is spread over the steps of a period
  bool in_pairs = false;           // the clock averages random pairs; ends average all ranks
  std::vector<std::string> notes;  // further lines: of slow and late ranks
  int islands = 0, ranks = 0;  // islands > 0: gradients are averaged within that many islands in
                               // every step
};

// The number of averagings of parameters: on schedule, at ends of epochs or of the run that the
// schedule does not cover, and before checkpoints that are at none of these.
struct PlannedAveragings {
  std::int64_t by_clock = 0, at_ends = 0, at_saves = 0;
};
PlannedAveragings count_averagings(const AveragingPlan& plan);

// Returns one line that describes the averaging, then one line for each likely mistake
// ("K = 500 > 196 steps ...").
std::vector<std::string> describe(const AveragingPlan& plan);

}  // namespace engine
