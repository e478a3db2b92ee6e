// Implements completion and futures of calls.
#include "tools/api/torch/engine_work.h"

#include <utility>

namespace engine::pytorch {

EngineWork::EngineWork(int rank, c10d::OpType type, const char* title,
                       std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs,
                       std::uint64_t sequence, std::chrono::milliseconds timeout)
    : c10d::Work(rank, type, title, std::move(inputs)),
      outputs_(std::move(outputs)),
      sequence_(sequence),
      timeout_(timeout) {}

void EngineWork::complete(std::exception_ptr failure, int source) {
  source_ = source;
  finish(std::move(failure));
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  // Its callbacks run here, and may ask for this work's results.
  if (future) mark(*future);
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
