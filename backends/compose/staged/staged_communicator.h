// Collectives on device memory over a host communicator (shm, gloo, socket, ...): pieces go through
// two pinned buffers, so that the copies of one piece overlap with the exchange of the other.
//
// Used for ranks on GPUs without NCCL, or ranks that share a GPU. The calls ending in _on block
// until the last piece has been exchanged and its copy back to the device is enqueued, so they
// cannot be captured. The result is the host communicator's: for all_reduce the fold in rank order.
// Every call compares control words, even after agree().
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backends/device_communicator.h"

namespace backends {

struct StagedOptions {
  std::size_t piece_bytes = std::size_t{2} << 20;  // of a pinned buffer; at least 16 per rank
  std::chrono::milliseconds timeout{600'000};
  std::vector<int> members = {};  // each rank's rank in the group, for messages; empty: the same
};

// Uses the calling thread's CUDA device. With one rank the calls move nothing and can be captured.
// Throws PeerError for errors of CUDA.
std::unique_ptr<DeviceCommunicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                             const StagedOptions& options);

}  // namespace backends
