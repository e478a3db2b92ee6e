// Device memory over a host communicator (shm, gloo, socket, ...): pieces go through pinned
// buffers, two at a time, so that the copies of one piece overlap with the exchange of the other.
//
// The second way for ranks on GPUs, where NCCL is not there or ranks share a GPU. The calls ending
// in _on block the caller until the last piece has been exchanged and its copy back to the device
// is on the stream: they cannot be captured. All ranks get the host communicator's result: for
// all_reduce the fold in rank order. Every call compares control words, whatever agree() said.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backends/device_communicator.h"

namespace backends {

struct StagedOptions {
  std::size_t piece_bytes = std::size_t{2} << 20;  // of a pinned buffer; at least 16 for each rank
  std::chrono::milliseconds timeout{600'000};
  std::vector<int> members = {};  // the group's rank of each rank, for messages; empty: the same
};

// Of the calling thread's CUDA device. A host communicator of one rank makes one whose calls move
// nothing and can be captured. Throws PeerError where CUDA refuses.
std::unique_ptr<DeviceCommunicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                             const StagedOptions& options);

}  // namespace backends
