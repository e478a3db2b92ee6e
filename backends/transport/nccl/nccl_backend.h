// NCCL between GPUs, in a build with CUDA and nccl.h; else the stub in no_nccl.cc.
//
// Operands must be in memory of the CUDA device that was current when the communicator was made.
// NCCL folds in its own order: all ranks get the same bits, but not those of the other backends,
// and kMax and kMin may ignore NaN. NCCL is not composed with other backends: it uses NVLink, PCI
// and the network itself.
//
// The library is loaded on first use, so that the program starts without it. Ranks that share a GPU
// are refused before NCCL is initialized, because NCCL does not support that. With
// ENGINE_ALLOW_SHARED_GPU=1 each process sets a NCCL_HOSTID of its own, so that NCCL treats them as
// different hosts: for tests of correctness, not of speed.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/device_communicator.h"

namespace backends {

extern const bool kNcclIsBuilt;
extern const char* const kNcclNote;

// Why NCCL cannot be used on this machine: "no libnccl.so.2 (...)", "no CUDA device (...)"; "" if
// it can. Does not initialize CUDA. Any thread.
const std::string& missing_for_nccl();
// "NCCL 2.28.9 (/usr/lib/x86_64-linux-gnu/libnccl.so.2)". REQUIRES: nothing is missing.
std::string describe_nccl();

// Collective over the ranks of the context, each of them with a device of its own. Throws
// PeerError, ConfigurationError.
std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext& context);
// The same, but if a rank cannot use NCCL, returns nullptr on all ranks, with the reason.
std::unique_ptr<DeviceCommunicator> try_nccl_communicator(const BackendContext& context,
                                                          std::string& refusal);

}  // namespace backends
