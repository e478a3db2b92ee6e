// This rank's membership in one process group: joins through PyTorch's store, and leaves.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/collectives.h"

namespace engine::pytorch {

struct JoinRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{};
};

// Blocks until all ranks have joined. Reads ENGINE_BACKEND, ENGINE_LOCAL_STAGE, ENGINE_ENCRYPT,
// ENGINE_IFACE and, as the library does, ENGINE_SECRET and ENGINE_SECRET_FILE.
class GroupLinks {
 public:
  explicit GroupLinks(const JoinRequest& request);

  api::Communicator& communicator() { return *communicator_; }
  // Throws ConfigurationError in a group of one rank.
  api::Messages& messages();

  // Leaves in order: waits for the other ranks, which may still need this one, at most as long as
  // a call may take, or some seconds after hurry().
  void leave() noexcept;
  void hurry() noexcept { hurried_->store(true); }
  // Ends the membership at once: the other ranks fail and report `why`.
  void abandon(const std::string& why) noexcept;

 private:
  std::shared_ptr<std::atomic<bool>> hurried_ = std::make_shared<std::atomic<bool>>(false);
  std::optional<api::Group> group_;
  std::optional<api::Communicator> communicator_;
  std::optional<api::Messages> messages_;
};

}  // namespace engine::pytorch
