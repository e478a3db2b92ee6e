// Before NCCL is asked: all ranks tell rank 0 of the communicator what they have, and it invites
// all or none.
#pragma once

#include <nccl.h>

#include <string>

#include "backends/backend.h"

namespace backends {

struct NcclInvitation {
  ncclUniqueId id{};
  std::string refusal;  // equal on all ranks; "": all are invited
};

// Collective over the ranks of the context. Refused where a rank has no NCCL or no device, where
// versions of the library differ in more than the last number, or where two ranks use one GPU and
// ENGINE_ALLOW_SHARED_GPU is not 1. Throws PeerError.
NcclInvitation meet_for_nccl(const BackendContext& context);

// Collective, before an error that all ranks have read from the store under `key`: whoever throws
// it may end its group, and the others would hear of that first. Waits for a few seconds at most.
void wait_until_all_know(Store& store, const std::string& key, int rank, int world_size) noexcept;

}  // namespace backends
