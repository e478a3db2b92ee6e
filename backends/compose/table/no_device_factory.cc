// Replaces device_factory.cc in a build without CUDA.
#include "backends/backend_error.h"
#include "backends/compose/table/device_factory.h"

namespace backends {
namespace {

[[noreturn]] void refuse() {
  throw ConfigurationError(
      "this build has no CUDA: build with ENGINE_WITH_CUDA=ON for collectives on device memory");
}

}  // namespace

DeviceChoice choose_for_device(const std::string&, const std::string&) { return {}; }

// NOLINTBEGIN(performance-unnecessary-value-param): the signatures are those of device_factory.h.
std::unique_ptr<DeviceCommunicator> create_device_communicator(const DeviceChoice&, LocalStage,
                                                               BackendContext,
                                                               const std::vector<PeerInfo>&) {
  refuse();
}

std::unique_ptr<DeviceCommunicator> stage_for_device(std::unique_ptr<Communicator>,
                                                     std::chrono::milliseconds,
                                                     const std::vector<int>&) {
  refuse();
}

std::unique_ptr<DeviceCommunicator> guard_device(std::unique_ptr<DeviceCommunicator>, Guard) {
  refuse();
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace backends
