// NCCL between GPUs, in a build with CUDA and nccl.h; else the stub in no_nccl.cc.
//
// Data of every call lies in memory of the CUDA device that was current when the communicator was
// made; host memory is refused. NCCL folds in its own order: all ranks get the same bits, but not
// those of the other backends, and NaN may lose against a number in kMax and kMin. NCCL composes
// nothing with other backends: it finds NVLink, PCI and the network itself.
//
// The library is loaded when it is first asked for: this program does not need it to start. Several
// ranks on one GPU are refused, as NCCL does, before NCCL is asked. With ENGINE_ALLOW_SHARED_GPU=1
// each process gives itself a NCCL_HOSTID of its own, so that NCCL takes them for different hosts:
// for tests of correctness, never of speed.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/device_communicator.h"

namespace backends {

extern const bool kNcclIsBuilt;
extern const char* const kNcclNote;

// What this machine lacks for NCCL: "" nothing, "no libnccl.so.2 (...)", "no CUDA device (...)".
// Does not start CUDA. Any thread.
const std::string& missing_for_nccl();
// "NCCL 2.28.9 (/usr/lib/x86_64-linux-gnu/libnccl.so.2)". REQUIRES: nothing is missing.
std::string describe_nccl();

// Collective over the ranks of the context, each of them with a device of its own. Throws
// PeerError, ConfigurationError.
std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext& context);
// The same, or on all ranks nullptr and why, where one of them cannot use NCCL.
std::unique_ptr<DeviceCommunicator> try_nccl_communicator(const BackendContext& context,
                                                          std::string& refusal);

}  // namespace backends
