// A rank's side of its connection to the store, after the welcome, as a state machine: requests,
// heartbeats, the start, failures of members, leaving. It has no clock, socket or thread, like
// server_machine.h; store_client.h runs it on a socket.
#pragma once

#include <chrono>
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
#include "backends/store/protocol/member_link.h"
#include "backends/store/protocol/stall_detector.h"
#include "backends/store/protocol/wire.h"
#include "io/base/time/deadline.h"

namespace backends {

class MemberMachine final : public MemberLink {
 public:
  // `parser` may hold frames that came after the welcome: received("") reads them.
  MemberMachine(FrameParser parser, Seals seals, int heartbeat_ms, Time now,
                LinkPatience patience = {});

  // Inputs.
  void received(std::string_view bytes, Time now);
  void sent();  // the network has taken all output so far

  // Actions of this rank.
  bool heartbeat_due(Time now) const;
  void heartbeat(const RankProgress& progress, Time now);
  void set_activity(std::string_view activity);
  // Returns the number of the request, for replies(). nullopt: the request is too large to be sent.
  std::optional<std::uint32_t> request(FrameType type, std::string_view key,
                                       const std::function<void(FrameWriter&)>& rest);
  // Leaves in order, when the others also do; answered by state().left. `calls`: what the others
  // need to know of the calls that this rank has made, for take_departures().
  void leave(const std::string& calls = {});
  // Early: all ranks get the reason, this one (`own_rank`) as state().failure.
  void abandon(const GroupFailure& why, int own_rank);
  void end();  // ends early without a reason, or for good

  // Rank 0 asks whether other ranks answer probes.
  struct Question {
    int rank;
    std::string address;
  };
  // Ranks that have left in order while this one works, with their text of leave().
  struct Departure {
    int rank;
    std::string calls;
  };
  std::vector<Departure> take_departures() { return std::exchange(departures_, {}); }

  std::vector<Question> take_questions() { return std::exchange(questions_, {}); }
  void answer(int rank, bool reaches);

  std::map<std::uint32_t, std::optional<std::string>>& replies() { return replies_; }

  struct Failure {
    int rank;
    GroupFailure what;
  };
  struct Absent {
    std::vector<int> missing;  // not here yet, or with a broken connection
    std::vector<int> left;     // joined and left again
  };
  struct State {
    Absent absent;                // before the start, as last reported by rank 0
    std::vector<PeerInfo> peers;  // after the start
    std::string group_nonce;      // after the start
    bool started = false, leaving = false, left = false;
    std::optional<std::string> lost;  // why the connection ended
    std::optional<Failure> failure;   // the first of a member
    std::optional<std::pair<RefusalKind, std::string>> fatal;
    std::string activity;
  };
  const State& state() const { return state_; }

 private:
  bool is_in_session() const override;
  void on_end(const std::string& cause) override;
  void handle(const Frame& frame);
  void handle_start(FrameReader& in);

  Time next_heartbeat_;
  std::map<std::uint32_t, std::optional<std::string>> replies_;
  std::uint32_t next_request_ = 1;
  State state_;
  bool starting_ =
      false;  // rank 0 has announced the start: the acknowledgement may not be sent yet
  bool ended_ = false;
  std::string last_activity_sent_, root_activity_;
  // The number and the reason with which this rank has ended its membership early.
  int own_rank_ = -1;
  std::string own_reason_;
  std::vector<Question> questions_;
  std::vector<Departure> departures_;
};

}  // namespace backends
