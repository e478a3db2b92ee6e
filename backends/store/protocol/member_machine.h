// A rank's side of its connection to the store, after the welcome, as a state machine: requests,
// heartbeats, the start, failures of members, leaving. It has no clock, socket or thread, like
// server_machine.h; store_client.h runs it on a socket.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/group.h"
#include "backends/store/protocol/seal.h"
#include "backends/store/protocol/stall_detector.h"
#include "backends/store/protocol/wire.h"
#include "io/base/time/deadline.h"

namespace backends {

class MemberMachine {
 public:
  using Time = base::Deadline;

  // `parser` may hold frames that came after the welcome: received("") reads them.
  MemberMachine(FrameParser parser, Seals seals, int heartbeat_ms, Time now);

  // Inputs.
  void received(std::string_view bytes, Time now);
  void closed(const std::string& cause);  // "its connection closed"
  void sent();                            // the network has taken all output so far
  // Detects the silence of rank 0. A long time since the last call means that this process itself
  // was paused; silence then proves nothing. Call it at least every `tick_interval()`.
  void tick(Time now);
  std::chrono::milliseconds tick_interval() const;

  // Actions of this rank.
  bool heartbeat_due(Time now) const;
  void heartbeat(const RankProgress& progress, Time now);
  void set_activity(std::string_view activity);
  // Returns the number of the request, for replies(). nullopt: the request is too large to be sent.
  std::optional<std::uint32_t> request(FrameType type, std::string_view key,
                                       const std::function<void(FrameWriter&)>& rest);
  void leave();  // in order, when the others also leave; answered by has_left()
  // Ends early: all ranks receive the reason, this rank in failure().
  void abandon(const GroupFailure& why);
  void end();  // ends early without a reason, or for good

  std::string take_output() { return std::exchange(output_, {}); }

  // State.
  struct Failure {
    int rank;
    GroupFailure what;
  };
  struct Absent {
    std::vector<int> missing;  // not here yet, or with a broken connection
    std::vector<int> left;     // joined and left again
  };
  std::map<std::uint32_t, std::optional<std::string>>& replies() { return replies_; }
  const Absent& absent() const { return absent_; }  // before the start, as last reported by rank 0
  const std::vector<PeerInfo>& peers() const { return peers_; }    // after the start
  const std::string& group_nonce() const { return group_nonce_; }  // after the start
  bool has_started() const { return started_; }
  bool is_leaving() const { return leaving_; }
  bool has_left() const { return left_; }
  const std::optional<std::string>& lost() const { return lost_; }    // why the connection ended
  const std::optional<Failure>& failure() const { return failure_; }  // the first of a member
  const std::optional<std::pair<RefusalKind, std::string>>& fatal() const { return fatal_; }
  const std::string& activity() const { return activity_; }
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  void send(const std::string& frame);
  void handle(const Frame& frame);
  void handle_start(FrameReader& in);
  void connection_ended(const std::string& cause);

  const int heartbeat_ms_;
  FrameParser parser_;
  Seals seals_;
  std::string output_;
  Time last_received_, next_heartbeat_, last_turn_;
  std::map<std::uint32_t, std::optional<std::string>> replies_;
  std::uint32_t next_request_ = 1;
  Absent absent_;
  std::vector<PeerInfo> peers_;
  std::string group_nonce_;
  // `starting_`: rank 0 has announced the start, and its acknowledgement may not have been sent.
  bool starting_ = false, started_ = false, leaving_ = false, left_ = false, ended_ = false;
  std::optional<std::string> lost_;
  std::optional<Failure> failure_;
  std::optional<std::pair<RefusalKind, std::string>> fatal_;
  std::string activity_, last_activity_sent_, root_activity_;
  std::vector<std::string> notices_;
};

}  // namespace backends
