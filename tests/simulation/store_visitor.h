// Who else connects to the store of a simulated job: processes that are none of its ranks, and
// observers, which only follow it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/store/protocol/session_machine.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {

enum class Visit {
  kObserver,
  kNoise,  // says what no store understands
  kSilence,
  kOtherSecret,
  kOtherVersion,
  kOtherJob,
  kRelayed,  // by a process that has taken the job's port
  // The rest belong to this job, and contradict it.
  kTwin,  // of a rank
  kOtherWorld,
  kOtherBuild,
  kNoRank
};
inline constexpr int kVisits = 11;

struct VisitOptions {
  Visit what = Visit::kObserver;
  int number = 0;  // of its process
  int rank = 0;    // as which it comes
  int world_size = 1;
  milliseconds comes_after{0};
};

class StoreVisitor final : public Process {
 public:
  StoreVisitor(VirtualNetwork& network, VisitOptions options);

  void opened(ConnectionId, int, Port) override {}
  void received(ConnectionId id, const std::string& bytes) override;
  void closed(ConnectionId id, const std::string& cause) override;
  void run_once() override;
  Time wake_at() const override;
  bool listens(Port) const override { return false; }

  const VisitOptions& options() const { return options_; }
  std::string name() const;
  static constexpr const char* kHost = "elsewhere";
  // The store refuses it, and before the start of the group all ranks with it.
  bool contradicts() const { return options_.what >= Visit::kTwin; }
  bool is_refused() const { return options_.what >= Visit::kOtherVersion; }
  // What it and rank 0's user are told, and as what.
  std::string expected_text() const;
  bool expects(backends::RefusalKind kind, bool started) const;

  // What came of it.
  using State = backends::SessionMachine::State;
  Time connected_at() const { return connected_at_; }  // Time{}: it has never reached the store
  Time ended_at() const { return ended_at_; }          // Time{}: the connection stands
  State state() const { return state_; }
  const std::optional<std::pair<backends::RefusalKind, std::string>>& refusal() const {
    return refusal_;
  }
  // Of an observer: what it was told first of those that are missing, and last of all else.
  const std::optional<std::vector<int>>& missing() const { return missing_; }
  bool knows_of_start() const { return knows_of_start_; }  // that nobody is missing any more
  const std::string& status() const { return status_; }
  const std::string& goodbye() const { return goodbye_; }  // "left", or why the job ended
  bool understands() const { return understands_; }        // all that it has been told

 private:
  backends::Hello hello() const;
  void observe();
  void leave();

  VirtualNetwork& network_;
  const VisitOptions options_;
  const backends::Secret secret_;
  Time comes_at_{}, connected_at_{}, ended_at_{};
  ConnectionId store_ = 0;
  std::unique_ptr<backends::SessionMachine> session_;
  State state_ = State::kRunning;
  std::optional<std::pair<backends::RefusalKind, std::string>> refusal_;
  std::optional<std::vector<int>> missing_;
  std::string status_, goodbye_;
  bool knows_of_start_ = false, understands_ = true;
};

}  // namespace simulation
