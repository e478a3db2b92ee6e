// Replaces the nccl backend in a build without its header or without CUDA.
#include "backends/backend_error.h"
#include "backends/transport/nccl/nccl_backend.h"

namespace backends {

extern const bool kNcclIsBuilt = false;
extern const char* const kNcclNote =
    "install NCCL's development files and build with ENGINE_WITH_CUDA=ON and ENGINE_WITH_NCCL=ON";

const std::string& missing_for_nccl() {
  static const std::string missing = kNcclNote;
  return missing;
}

std::string describe_nccl() { return {}; }

std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext&) {
  throw ConfigurationError(std::string("backend nccl is not in this build: ") + kNcclNote);
}

std::unique_ptr<DeviceCommunicator> try_nccl_communicator(const BackendContext&,
                                                          std::string& refusal) {
  refusal = "this build has no NCCL";
  return nullptr;
}

}  // namespace backends
