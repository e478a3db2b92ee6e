// Selects the communicator for device memory.
#include "backends/compose/table/device_factory.h"

#include "backends/backend_error.h"
#include "backends/compose/staged/staged_communicator.h"
#include "backends/compose/table/backend_table.h"
#include "backends/compose/table/communicator_factory.h"
#include "backends/transport/nccl/nccl_backend.h"

namespace backends {

DeviceChoice choose_for_device(const std::string& requested, const std::string& group_backend) {
  constexpr std::string_view kStaged = "staged";
  const std::string& name = requested.empty() ? group_backend : requested;
  if (name == "nccl") return {true, ""};
  if (name == "auto") return {true, "auto"};
  if (name == kStaged) return {false, group_backend == "nccl" ? "auto" : group_backend};
  if (name.starts_with("staged:")) return {false, name.substr(kStaged.size() + 1)};
  return {false, name};
}

std::unique_ptr<DeviceCommunicator> create_device_communicator(
    const DeviceChoice& choice, LocalStage local_stage, BackendContext context,
    const std::vector<PeerInfo>& members) {
  if (choice.nccl && context.world_size > 1) {
    std::string refusal;
    if (context.encryption == Encryption::kOn) {
      refusal = "it does not encrypt its connections, which --encrypt on requires";
    } else if (context.relay != nullptr) {
      refusal = "its connections cannot go through a relay (--relay)";
    } else if (auto communicator = try_nccl_communicator(context, refusal)) {
      return communicator;
    }
    if (choice.host.empty()) throw ConfigurationError("backend nccl cannot be used: " + refusal);
    if (context.rank == 0 && context.notice)
      context.notice("no NCCL: " + refusal +
                     "; device memory is staged through pinned host memory instead");
  }
  context.prefix += "/host";
  const BackendPlan plan =
      plan_backend(choice.host.empty() ? "auto" : choice.host, local_stage, members);
  if ((plan.across != nullptr && plan.across->device_memory) ||
      (plan.compared != nullptr && plan.compared->device_memory))
    throw ConfigurationError("backend " + plan.name +
                             " works on GPU memory: nothing can be staged over it");
  return stage_for_device(create_communicator(plan, context, members), context.timeout,
                          context.members);
}

std::unique_ptr<DeviceCommunicator> stage_for_device(std::unique_ptr<Communicator> host,
                                                     std::chrono::milliseconds timeout,
                                                     const std::vector<int>& members) {
  return make_staged_communicator(std::move(host), {.timeout = timeout, .members = members});
}

}  // namespace backends
