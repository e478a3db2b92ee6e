// Implements the guard around a communicator for device memory.
#include "backends/compose/guard/guarded_calls.h"

namespace backends {
namespace {

class GuardedDeviceCommunicator final : public GuardedCalls<DeviceCommunicator> {
 public:
  using GuardedCalls::GuardedCalls;

  void run_on(void* stream, const Call& call) override {
    guard(call.word, [&] { inner().run_on(stream, call); });
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
