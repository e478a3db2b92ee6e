// A rank in a group: how it is stopped, what it leaves behind, and how it leaves.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/group.h"
#include "tools/options/table/run_config.h"

namespace tools {

// For flight records; "": none was chosen.
std::string chosen_folder(const RunConfig& config);

// What a rank was waiting for, for `engine inspect --flight`. Returns what to add to the error that
// it is written for; must not hide that error.
std::string write_flight_record(int rank, const std::vector<backends::PeerInfo>& peers,
                                const std::string& record,
                                const std::string& chosen_folder) noexcept;

// While it lives: 2 s after the signal to stop, rank 0 gives up a collective that hangs, saves what
// it has (Trainer) and leaves, which ends the others. They do not give up by themselves: rank 0 may
// be busy with the last save.
class StopWatchdog {
 public:
  explicit StopWatchdog(backends::Group& group);
  bool has_interrupted() const { return interrupted_; }

 private:
  void watch(backends::Group& group, const std::stop_token& stop);

  std::atomic<bool> interrupted_{false};
  std::jthread thread_;  // last: it uses the others
};

// body(group), and then leaves the group in order, or says why not. Errors pass, with the place of
// the flight record where another rank is their reason.
int run_joined(backends::Group& group, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body);

// The same in a group that it joins first.
int run_member(const backends::GroupOptions& options, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body);

}  // namespace tools
