// Holds the parts of a process group of the backend until it is shut down.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "tools/api/torch/call_deadline.h"
#include "tools/api/torch/call_queue.h"
#include "tools/api/torch/engine_work.h"
#include "tools/api/torch/group_links.h"
#include "tools/api/torch/tensor_calls.h"

namespace engine::pytorch {

// Returns the exception as PyTorch's programs expect it; `group` precedes its text.
std::exception_ptr distributed_error(const std::exception_ptr& failure, const std::string& group);

struct BackendState {
  BackendState(const JoinRequest& request, std::string text);

  // Waits for the calls that were posted.
  ~BackendState() { queue->finish(); }

  // Runs one call and completes its work; returns the callbacks of its future.
  CallQueue::Callbacks execute(std::chrono::milliseconds limit,
                               const std::function<void(TensorCalls&)>& body,
                               const c10::intrusive_ptr<EngineWork>& work);
  // Ends the membership: in order, or at once after a failure, so that no rank waits for another.
  void end();

  const std::string group_text;  // before messages
  const std::chrono::milliseconds timeout;
  GroupLinks links;
  TensorCalls calls;
  CallDeadline deadline;
  std::exception_ptr failure;  // of the first call that failed; of the calls alone
  // A wait for a call has reached its timeout: the program does not need the call any more.
  const std::shared_ptr<std::atomic<bool>> given_up = std::make_shared<std::atomic<bool>>(false);
  // Messages that complete later post their callbacks to it. Its threads use the above.
  const std::shared_ptr<CallQueue> queue = std::make_shared<CallQueue>();
};

}  // namespace engine::pytorch
