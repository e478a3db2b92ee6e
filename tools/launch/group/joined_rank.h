// Runs a rank in a group: stops it, writes its flight record, and makes it leave.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/group.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Returns the folder for flight records; "": none was chosen.
std::string chosen_folder(const RunConfig& config);

// Writes what a rank was waiting for, for `engine inspect --flight`. Returns text to add to the
// error that it is written for; must not hide that error.
std::string write_flight_record(int rank, const std::vector<backends::PeerInfo>& peers,
                                const std::string& record,
                                const std::string& chosen_folder) noexcept;

// While it exists: 2 s after the signal to stop, rank 0 aborts a collective that hangs, saves what
// it has (Trainer) and leaves, which ends the others. They do not abort by themselves, because rank
// 0 may be busy with the last save.
class StopWatchdog {
 public:
  explicit StopWatchdog(backends::Group& group);
  bool has_interrupted() const { return interrupted_; }

 private:
  void watch(backends::Group& group, const std::stop_token& stop);

  std::atomic<bool> interrupted_{false};
  std::jthread thread_;  // last member, because it uses the others
};

// Runs body(group), and then leaves the group in order, or abandons it with the reason. Errors are
// rethrown, with the path of the flight record if another rank is their cause.
int run_joined(backends::Group& group, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body);

// Does the same in a group that it joins first.
int run_member(const backends::GroupOptions& options, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body);

}  // namespace tools
