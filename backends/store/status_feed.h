// Follows a job from outside through the address of its rendezvous: `engine top HOST:PORT`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/store/store_connection.h"
#include "backends/store/store_session.h"

namespace backends {

class StatusFeed {
 public:
  // Connects. Throws PeerError if no job answers there by `deadline`, AuthenticationError if it has
  // another secret, MismatchError if it speaks another version of the protocol.
  StatusFeed(const Endpoint& server, const Secret& secret, Deadline deadline);

  // Returns the newest text that rank 0 has published (Group::publish_status()) and that has not
  // been returned yet; waits for one until `deadline`. nullopt: none came, or the job has ended.
  // Throws PeerError if the connection ended in another way, because the job's state is then
  // unknown.
  std::optional<std::string> next(Deadline deadline);
  bool has_ended() const { return ended_; }  // in order, as rank 0 has reported
  // The ranks that have not joined yet; nullopt until rank 0 has reported them.
  const std::optional<std::vector<int>>& missing() const { return missing_; }

 private:
  void take_frames(std::optional<std::string>& newest);

  const std::string server_;  // its address, for messages
  StoreConnection connection_;
  FrameParser parser_;
  Seals seals_;
  std::optional<std::vector<int>> missing_;
  bool ended_ = false;
  std::string lost_;  // why the feed ended, if the job did not end; else ""
};

}  // namespace backends
