// NCCL between GPUs, where nccl.h was found at build time; else the stub in no_nccl.cc.
//
// Data of every call lies in memory of the CUDA device that was current when the communicator was made, and what writes to it
// must have finished: calls run on a stream of their own and return when the result is there. Host memory is refused. NCCL
// folds in its own order: all ranks get the same bits, but not those of the other backends, and NaN may lose against a number
// in kMax and kMin.
//
// The libraries are loaded when they are first asked for: this program does not need them to start.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace backends {

extern const bool kNcclIsBuilt;
extern const char* const kNcclNote;

// What this machine lacks for NCCL: "" nothing, "no libnccl.so.2 (…)", "no CUDA device (…)". Any thread.
const std::string& missing_for_nccl();

// Collective over the ranks of the context, each of them with a device of its own. Throws PeerError, ConfigurationError.
std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext& context);

}  // namespace backends
