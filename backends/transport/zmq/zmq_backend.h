// The backend for ZeroMQ over TCP, if libzmq and cppzmq were found; else the stub in no_zmq.cc.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace backends {

extern const bool kZmqIsBuilt;
extern const char* const kZmqNote;

// Collective over the context's ranks. Throws PeerError, AuthenticationError.
std::unique_ptr<Communicator> make_zmq_communicator(const BackendContext& context);

}  // namespace backends
