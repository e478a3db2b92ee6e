// Implements the calls of one process group: runs them, and translates their failures.
#include "tools/api/torch/backend_state.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <utility>

#include "tools/api/torch/call_purpose.h"

namespace engine::pytorch {

std::exception_ptr distributed_error(const std::exception_ptr& failure, const std::string& group) {
  if (!failure) return nullptr;
  try {
    std::rethrow_exception(failure);
  } catch (const api::Error& error) {
    return std::make_exception_ptr(
        c10::DistBackendError({"engine", __FILE__, static_cast<std::uint32_t>(__LINE__)},
                              group + with_purposes(error.what())));
  } catch (...) {
    return std::current_exception();
  }
}

BackendState::BackendState(const JoinRequest& request, std::string text)
    : group_text(std::move(text)),
      timeout(request.timeout),
      links(request),
      calls(links.communicator(), request.size > 1 ? &links.messages() : nullptr),
      deadline(
          [this] { links.communicator().abort("no result within the timeout of this call"); }) {}

CallQueue::Callbacks BackendState::execute(std::chrono::milliseconds limit,
                                           const std::function<void(TensorCalls&)>& body,
                                           const c10::intrusive_ptr<EngineWork>& work) {
  const at::NoGradGuard no_grad;
  const auto completed = [&](const std::exception_ptr& result) -> CallQueue::Callbacks {
    if (!work->complete(result)) return nullptr;
    return [work] { work->run_callbacks(); };
  };
  if (failure) return completed(failure);
  const bool shorter = limit < timeout;
  calls.set_timeout(limit);
  if (shorter) deadline.begin(limit);
  std::exception_ptr failed;
  try {
    body(calls);
  } catch (const api::Error&) {
    // After a failure the ranks exchange no more.
    failed = failure = distributed_error(std::current_exception(), group_text);
  } catch (...) {
    failed = std::current_exception();
  }
  if (shorter) deadline.end();
  return completed(failed);
}

void BackendState::end() {
  if (given_up->load())
    links.abandon("its program ended the process group without the result of a call");
  queue->finish();
  if (!failure) return links.leave();
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    links.abandon(error.what());
  }
}

}  // namespace engine::pytorch
