// Replaces the zmq backend in a build without the library.
#include "backends/backend_error.h"
#include "backends/transport/zmq/zmq_backend.h"

namespace backends {

extern const bool kZmqIsBuilt = false;
extern const char* const kZmqNote =
    "install libzmq3-dev and cppzmq-dev and build with ENGINE_WITH_ZMQ=ON";

std::unique_ptr<Communicator> make_zmq_communicator(const BackendContext&) {
  throw ConfigurationError(std::string("backend zmq is not in this build: ") + kZmqNote);
}

}  // namespace backends
