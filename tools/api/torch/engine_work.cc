// Implements completion and futures of calls.
#include "tools/api/torch/engine_work.h"

#include <utility>

namespace engine::pytorch {

EngineWork::EngineWork(Description call, std::vector<at::Tensor> inputs,
                       std::vector<at::Tensor> outputs)
    : c10d::Work(call.rank, call.type, call.title, std::move(inputs)),
      call_(std::move(call)),
      outputs_(std::move(outputs)) {}

bool EngineWork::complete(std::exception_ptr failure, int source) {
  source_ = source;
  finish(std::move(failure));
  const std::lock_guard lock(mutex_);
  return future_ != nullptr;
}

void EngineWork::run_callbacks() { mark(*future_); }

bool EngineWork::wait(std::chrono::milliseconds timeout) {
  try {
    return Work::wait(timeout);
  } catch (...) {
    if (!isCompleted()) call_.given_up->store(true);
    throw;
  }
}

c10::intrusive_ptr<c10::ivalue::Future> EngineWork::getFuture() {
  bool completed = false;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    completed = completed_;
  }
  // Otherwise complete() finds the future.
  if (completed) mark(*future_);
  return future_;
}

void EngineWork::mark(c10::ivalue::Future& future) {
  if (marked_.exchange(true)) return;
  if (exception_) {
    future.setError(exception_);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

}  // namespace engine::pytorch
