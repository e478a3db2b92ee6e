// One call of torch.distributed: completes on a thread of the backend, or in the calling one.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <vector>

namespace engine::pytorch {

class EngineWork final : public c10d::Work {
 public:
  // `title` is the name in profiles, a string of static lifetime.
  EngineWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> inputs,
             std::vector<at::Tensor> outputs, std::uint64_t sequence,
             std::chrono::milliseconds timeout);

  // Completes the work, with its failure or nullptr. `source`: the rank that a message came from.
  void complete(std::exception_ptr failure, int source = -1);

  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override { return source_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const override { return timeout_; }

 private:
  void mark(c10::ivalue::Future& future);

  const std::vector<at::Tensor> outputs_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  int source_ = -1;
  std::atomic<bool> marked_{false};                 // the future is completed by whom comes first
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when it is asked for; guarded by mutex_
};

}  // namespace engine::pytorch
