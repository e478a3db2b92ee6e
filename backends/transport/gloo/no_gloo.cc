// Replaces the gloo backend in a build without the library.
#include "backends/backend_error.h"
#include "backends/transport/gloo/gloo_backend.h"

namespace backends {

extern const bool kGlooIsBuilt = false;
extern const char* const kGlooNote = "install libgloo-dev and build with ENGINE_WITH_GLOO=ON";

std::unique_ptr<Communicator> make_gloo_communicator(const BackendContext&) {
  throw ConfigurationError(std::string("backend gloo is not in this build: ") + kGlooNote);
}

}  // namespace backends
