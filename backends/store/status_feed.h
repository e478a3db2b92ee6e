// Follows a job from outside, by the address of its rendezvous: `engine top HOST:PORT`.
#pragma once

#include <optional>
#include <string>

#include "backends/store/store_connection.h"
#include "backends/store/store_session.h"

namespace backends {

class StatusFeed {
 public:
  // Connects. Throws PeerError if no job answers there by `deadline`, AuthenticationError if it has
  // another secret, MismatchError if it speaks another version of the protocol.
  StatusFeed(const Endpoint& server, const Secret& secret, Deadline deadline);

  // The newest text that rank 0 has published (Group::publish_status()); waits for one that has not
  // been returned yet. nullopt: the job has ended. Throws PeerError at `deadline`.
  std::optional<std::string> next(Deadline deadline);

 private:
  void take_frames(std::optional<std::string>& newest);

  const std::string server_;  // its address, for messages
  StoreConnection connection_;
  FrameParser parser_;
  Seals seals_;
  bool ended_ = false;
};

}  // namespace backends
