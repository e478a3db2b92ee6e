// Before NCCL is initialized: all ranks report their library, version and GPU to rank 0 of the
// communicator, which distributes NCCL's unique id to all of them or the same refusal to all.
#pragma once

#include <nccl.h>

#include <string>

#include "backends/backend.h"

namespace backends {

struct NcclBootstrap {
  ncclUniqueId id{};
  std::string refusal;  // equal on all ranks; "": id is valid
};

// Collective over the ranks of the context. Refused where a rank has no NCCL or no device, where
// versions of the library differ in more than the last number, or where two ranks use one GPU and
// ENGINE_ALLOW_SHARED_GPU is not 1. Throws PeerError.
NcclBootstrap bootstrap_nccl(const BackendContext& context);

// Collective. Waits a few seconds at most until all ranks have read the error that is stored under
// `key`: a rank that throws it earlier may end its group, and the others would report that instead.
void wait_until_all_read(Store& store, const std::string& key, int rank, int world_size) noexcept;

}  // namespace backends
