// Implements process groups: how they join, run calls in order, and end.
#include "tools/api/torch/engine_backend.h"

#include <string>
#include <thread>
#include <utility>

#include "tools/api/torch/backend_state.h"

namespace engine::pytorch {
namespace {

std::string members_text(const std::vector<std::uint64_t>& members, int size) {
  bool whole = true;
  for (std::size_t i = 0; i < members.size(); ++i) whole = whole && members[i] == i;
  if (whole) return "";
  std::string text = "process group of ranks";
  for (std::size_t i = 0; i < members.size() && i < 16; ++i)
    text += (i == 0 ? " " : ", ") + std::to_string(members[i]);
  return text + (size > 16 ? ", ...: " : ": ");
}

// The process's backends, and the threads in which their groups leave.
struct Registry {
  std::mutex mutex;
  std::vector<EngineBackend*> live;
  std::vector<std::function<void()>> hurry;  // of groups that leave
  std::vector<std::thread> leaving;
};

Registry& registry() {
  static auto* one = new Registry;  // used by destructors at the end of the process
  return *one;
}

}  // namespace

EngineBackend::EngineBackend(const JoinRequest& request, std::vector<std::uint64_t> members)
    : Backend(request.rank, request.size),
      options_(c10::make_intrusive<Options>("engine", request.timeout)) {
  options_->global_ranks_in_group = members;
  const std::string text = members_text(members, request.size);
  try {
    state_ = std::make_shared<BackendState>(request, text);
  } catch (const api::Error&) {
    std::rethrow_exception(distributed_error(std::current_exception(), text));
  }
  init();
  const std::lock_guard lock(registry().mutex);
  registry().live.push_back(this);
}

EngineBackend::~EngineBackend() {
  {
    const std::lock_guard lock(registry().mutex);
    std::erase(registry().live, this);
  }
  stop();
}

std::shared_ptr<BackendState> EngineBackend::live_state(const char* call) const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(state_ != nullptr, "engine, ", call, ": the process group was destroyed");
  return state_;
}

std::chrono::milliseconds EngineBackend::timeout_of(std::chrono::milliseconds asked) const {
  return asked == c10d::kUnsetTimeout || asked == kNoTimeout ? options_->timeout : asked;
}

void EngineBackend::setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }

WorkPointer EngineBackend::run(const CallKind& kind, Tensors inputs, Tensors outputs,
                               std::function<void(TensorCalls&)> body) {
  const std::shared_ptr<BackendState> state = live_state(kind.title);
  const std::chrono::milliseconds timeout = timeout_of(kind.timeout);
  const auto work = c10::make_intrusive<EngineWork>(
      EngineWork::Description{getRank(), kind.type, kind.title, ++sequence_, timeout,
                              state->given_up},
      std::move(inputs), std::move(outputs));
  // The queue outlives its calls, and the state its queue.
  const auto call = [own = state.get(), timeout, body = std::move(body), work] {
    return own->execute(timeout, body, work);
  };
  if (kind.async || !state->queue->run_now(call)) state->queue->post(call);
  return work;
}

void EngineBackend::stop() {
  std::shared_ptr<BackendState> state;
  {
    const std::lock_guard lock(mutex_);
    state.swap(state_);
  }
  if (!state) return;
  // Other ranks may still need this one before they leave: the program does not wait for them.
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (getRank() != 0)
    all.hurry.emplace_back([weak = std::weak_ptr<BackendState>(state)] {
      if (const auto leaving = weak.lock()) leaving->links.hurry();
    });
  all.leaving.emplace_back([own = std::move(state)] { own->end(); });
}

void EngineBackend::shutdown() { stop(); }

void EngineBackend::abort() { abandon("its program has aborted the process group"); }

void EngineBackend::abandon(const std::string& why) {
  std::shared_ptr<BackendState> state;
  {
    const std::lock_guard lock(mutex_);
    state.swap(state_);
  }
  if (state) state->links.abandon(why);
}

void EngineBackend::end_all(const std::string& why) {
  Registry& all = registry();
  std::vector<EngineBackend*> live;
  {
    const std::lock_guard lock(all.mutex);
    live.swap(all.live);
  }
  for (EngineBackend* backend : live) why.empty() ? backend->stop() : backend->abandon(why);
  std::vector<std::thread> leaving;
  {
    const std::lock_guard lock(all.mutex);
    for (const auto& hurry : all.hurry) hurry();
    leaving.swap(all.leaving);
  }
  for (std::thread& thread : leaving) thread.join();
}

}  // namespace engine::pytorch
