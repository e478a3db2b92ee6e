// The backend "engine" of torch.distributed: every call that c10d defines for tensors of the CPU.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/api/torch/group_links.h"
#include "tools/api/torch/tensor_calls.h"

namespace engine::pytorch {

struct BackendState;  // backend_state.h

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// PyTorch calls it through its base class.
class EngineBackend final : public c10d::Backend {
 public:
  // Blocks until all ranks of the process group have joined. `members`: their ranks in the job, for
  // messages; empty: all of them.
  EngineBackend(const JoinRequest& request, std::vector<std::uint64_t> members);
  ~EngineBackend() override;

  // At the end of the process: groups that were not shut down leave, or are abandoned with `why` if
  // that is not empty; waits for those that are leaving.
  static void end_all(const std::string& why);

 private:
  const std::string getBackendName() const override { return "engine"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}  // both count from 0

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs,
                     const c10d::GatherOptions& opts) override;
  WorkPointer gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::GatherOptions& opts) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ScatterOptions& opts) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& opts) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& opts) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_rows,
                            std::vector<std::int64_t>& input_rows,
                            const c10d::AllToAllOptions& opts) override;
  WorkPointer send(Tensors& tensors, int rank, int tag) override;
  WorkPointer recv(Tensors& tensors, int rank, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_for_all) override;

  void abort() override;
  void shutdown() override;

  // The kind of a call, for works, messages and profiles.
  struct CallKind {
    c10d::OpType type;
    const char* title;  // "engine:all_reduce"
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    bool async = true;
  };

  WorkPointer run(const CallKind& kind, Tensors inputs, Tensors outputs,
                  std::function<void(TensorCalls&)> body);
  WorkPointer receive(Tensors& tensors, int rank, int tag, const CallKind& kind);
  std::chrono::milliseconds timeout_of(std::chrono::milliseconds asked) const;
  void require_rank(std::int64_t rank, const char* call, const char* what) const;
  std::shared_ptr<BackendState> live_state(const char* call) const;
  // Ends the membership: in order, in a thread of its own, or at once.
  void stop();
  void abandon(const std::string& why);

  const c10::intrusive_ptr<Options> options_;
  std::atomic<std::uint64_t> sequence_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<BackendState> state_;  // nullptr after shutdown; guarded by mutex_
};

}  // namespace engine::pytorch
