// Runs before NCCL is initialized: all ranks report their library, version and GPU to rank 0 of the
// communicator, which sends all of them either NCCL's unique id or the same refusal.
#pragma once

#include <nccl.h>

#include <string>

#include "backends/backend.h"

namespace backends {

struct NcclBootstrap {
  ncclUniqueId id{};
  std::string refusal;  // equal on all ranks; "": id is valid
};

// Collective over the context's ranks. Refuses if a rank has no NCCL or no device, if versions of
// the library differ in more than the last number, or if two ranks use one GPU and
// ENGINE_ALLOW_SHARED_GPU is not 1. Throws PeerError.
NcclBootstrap bootstrap_nccl(const BackendContext& context);

// Collective. Waits at most a few seconds until all ranks have read the error that is stored under
// `key`: a rank that throws it earlier may end its group, and the others would report that instead.
void wait_until_all_read(Store& store, const std::string& key, int rank, int world_size) noexcept;

}  // namespace backends
