// Stands in for the nccl backend in a build without its header.
#include "backends/backend_error.h"
#include "backends/nccl/nccl_backend.h"

namespace backends {

extern const bool kNcclIsBuilt = false;
extern const char* const kNcclNote = "install NCCL's and CUDA's headers and build with ENGINE_WITH_NCCL=ON";

const std::string& missing_for_nccl() {
  static const std::string missing = kNcclNote;
  return missing;
}

std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext&) {
  throw ConfigurationError(std::string("backend nccl is not in this build: ") + kNcclNote);
}

}  // namespace backends
