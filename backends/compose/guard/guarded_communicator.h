// Wraps a backend's communicator: records calls, adds rank and operation to
// errors, and waits for failure detection, so that an error names the rank that died. A detected
// failure aborts it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/compose/guard/departures.h"
#include "backends/device_communicator.h"
#include "backends/flight_recorder.h"

namespace backends {

struct Guard {
  std::shared_ptr<FailureDetector> watch;
  std::shared_ptr<FlightRecorder> recorder;
  int communicator = 0;          // its number in the flight record
  int rank = 0, world_size = 1;  // the rank in the group and its size, for messages
  std::chrono::milliseconds detection_time{2000};  // after which a member's failure is known
  std::chrono::milliseconds timeout{};             // of a call; 0: unknown
  // Returns a further cause to be named after an error, e.g. "; the relay at ... does not answer",
  // or "". May take a second; may be empty.
  std::function<std::string()> further_cause = {};
  // For ranks that leave: the communicator's name, equal on all members, and these as ranks of the
  // group. nullptr: calls wait for ranks that have left.
  std::shared_ptr<Departures> departures = {};
  std::string name = {};
  std::vector<int> members = {};
};

// Returns four heartbeats, at least 2 s and at most 60 s: the failure that this rank sees may be
// the consequence of another rank's, whose silence the failure detector reports that much later.
std::chrono::milliseconds detection_time(std::chrono::milliseconds heartbeat);

std::unique_ptr<Communicator> guard(std::unique_ptr<Communicator> inner, Guard by);
// Only in a build with CUDA.
std::unique_ptr<DeviceCommunicator> guard_device(std::unique_ptr<DeviceCommunicator> inner,
                                                 Guard by);

// Returns e.g. "backend gloo, rank 0 of 3, all_reduce sum of 7 f32: ".
std::string failure_context(std::string_view backend, int rank, int world_size,
                            const std::string& operation);

// Throws `context` and the failure that the watch reports within `wait`, with `error` if that has
// more information. If the watch reports none, throws `context` and `error`.
[[noreturn]] void raise_explained(FailureDetector& watch, std::chrono::milliseconds wait,
                                  const std::string& context, const std::string& error);

}  // namespace backends
