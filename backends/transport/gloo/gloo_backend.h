// The backend for Gloo over TCP, if libgloo was found; else the stub in no_gloo.cc.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace backends {

extern const bool kGlooIsBuilt;
extern const char* const kGlooNote;

// Collective over the context's ranks. Throws as SocketMesh does.
std::unique_ptr<Communicator> make_gloo_communicator(const BackendContext& context);

}  // namespace backends
