// Implements the guard around a communicator for device memory.
#include "backends/compose/guard/guarded_calls.h"

namespace backends {
namespace {

class GuardedDeviceCommunicator final : public GuardedCalls<DeviceCommunicator> {
 public:
  using GuardedCalls::GuardedCalls;

  void all_reduce_on(void* stream, void* data, std::size_t count, DType type,
                     ReduceOp op) override {
    run(reduction_word(Operation::kAllReduce, next_sequence(), count, type, op),
        [&] { inner().all_reduce_on(stream, data, count, type, op); });
  }
  void broadcast_on(void* stream, void* data, std::size_t bytes, int root) override {
    if (root < 0 || root >= world_size())
      throw MismatchError("broadcast of " + std::to_string(bytes) + " bytes from rank " +
                          std::to_string(root) + ": no such rank in a world of " +
                          std::to_string(world_size()));
    run(transfer_word(Operation::kBroadcast, next_sequence(), bytes, root),
        [&] { inner().broadcast_on(stream, data, bytes, root); });
  }
  void all_gather_on(void* stream, const void* input, std::size_t bytes, void* output) override {
    run(transfer_word(Operation::kAllGather, next_sequence(), bytes),
        [&] { inner().all_gather_on(stream, input, bytes, output); });
  }
  void reduce_scatter_on(void* stream, void* data, std::size_t count, DType type,
                         ReduceOp op) override {
    run(reduction_word(Operation::kReduceScatter, next_sequence(), count, type, op),
        [&] { inner().reduce_scatter_on(stream, data, count, type, op); });
  }
  bool capturable() const override { return inner().capturable(); }
  void agree(std::span<const ControlWord> plan) override {
    explain([&] { return "the plan of " + std::to_string(plan.size()) + " collectives"; },
            [&] { inner().agree(plan); });
  }
  std::string first_failure(const std::string& own) override {
    std::string failure;
    explain([] { return std::string("first_failure"); },
            [&] { failure = inner().first_failure(own); });
    return failure;
  }
  void check() override {
    explain([] { return std::string("check"); }, [&] { inner().check(); });
  }
  void wait(void* stream) override {
    explain([] { return std::string("wait"); }, [&] { inner().wait(stream); });
  }
  void register_memory(void* memory, std::size_t bytes) override {
    explain([&] { return "register_memory of " + std::to_string(bytes) + " bytes"; },
            [&] { inner().register_memory(memory, bytes); });
  }
  void deregister_memory(void* memory) noexcept override { inner().deregister_memory(memory); }
  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    explain([&] { return "allocate of " + std::to_string(bytes) + " bytes"; },
            [&] { memory = inner().allocate(bytes); });
    return memory;
  }
  void release(void* memory) noexcept override { inner().release(memory); }
};

}  // namespace

std::unique_ptr<DeviceCommunicator> guard_device(std::unique_ptr<DeviceCommunicator> inner,
                                                 Guard by) {
  return std::make_unique<GuardedDeviceCommunicator>(std::move(inner), std::move(by));
}

}  // namespace backends
