// The backend for NCCL between GPUs, in a build with CUDA and nccl.h; else the stub in no_nccl.cc.
//
// Operands must be in memory of the CUDA device that was current when the communicator was made.
// NCCL folds in its own order: all ranks get the same bits, but not those of the other backends,
// and kMax and kMin may ignore NaN. NCCL is not composed with other backends: it uses NVLink, PCI
// and the network itself.
//
// The library is loaded on first use, so that the program starts without it. Ranks that share a GPU
// are rejected before NCCL is initialized, because NCCL does not support that. With
// ENGINE_ALLOW_SHARED_GPU=1 each process sets its own NCCL_HOSTID, so that NCCL treats them as
// different hosts: for tests of correctness, not of speed.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/device_communicator.h"

namespace backends {

extern const bool kNcclIsBuilt;
extern const char* const kNcclNote;

// Returns why NCCL cannot be used on this machine: "no libnccl.so.2 (...)", "no CUDA device (...)";
// "" if it can. Does not initialize CUDA. Any thread.
const std::string& missing_for_nccl();
// Returns e.g. "NCCL 2.28.9 (/usr/lib/x86_64-linux-gnu/libnccl.so.2)". REQUIRES: nothing is
// missing.
std::string describe_nccl();

// Collective over the context's ranks, each of which has its own device. Throws PeerError,
// ConfigurationError.
std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext& context);
// Does the same, but if a rank cannot use NCCL, returns nullptr on all ranks, with the reason in
// `refusal`.
std::unique_ptr<DeviceCommunicator> try_nccl_communicator(const BackendContext& context,
                                                          std::string& refusal);

}  // namespace backends
