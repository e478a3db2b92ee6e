// Holds the parts of a process group of the backend until it is shut down.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
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

  // Runs one call and completes its work.
  void execute(std::chrono::milliseconds limit, const std::function<void(TensorCalls&)>& body,
               EngineWork& work);

  const std::string group_text;  // before messages
  const std::chrono::milliseconds timeout;
  GroupLinks links;
  TensorCalls calls;
  CallDeadline deadline;
  std::exception_ptr failure;  // of the first call that failed; of the calls alone
  CallQueue queue;             // last: its thread uses the above
};

}  // namespace engine::pytorch
