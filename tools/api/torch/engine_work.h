// One call of torch.distributed: completes on a thread of the backend, or in the calling one.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace engine::pytorch {

class EngineWork final : public c10d::Work {
 public:
  struct Description {
    int rank;
    c10d::OpType type;
    const char* title;  // the name in profiles, a string of static lifetime
    std::uint64_t sequence;
    std::chrono::milliseconds timeout;
    std::shared_ptr<std::atomic<bool>> given_up;  // set if a wait reaches its timeout
  };
  EngineWork(Description call, std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs);

  // Completes the work, with its failure or nullptr. `source`: the rank that a message came from.
  // Returns true if run_callbacks() must follow.
  [[nodiscard]] bool complete(std::exception_ptr failure, int source = -1);
  // Completes the future. Its callbacks run here, and may make calls of their own and wait for
  // them.
  void run_callbacks();

  bool wait(std::chrono::milliseconds timeout) override;

  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override { return source_; }
  std::uint64_t getSequencenumber() const override { return call_.sequence; }
  std::chrono::milliseconds getTimeout() const override { return call_.timeout; }

 private:
  void mark(c10::ivalue::Future& future);

  const Description call_;
  const std::vector<at::Tensor> outputs_;
  int source_ = -1;
  std::atomic<bool> marked_{false};                 // the future is completed by whom comes first
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when it is asked for; guarded by mutex_
};

}  // namespace engine::pytorch
