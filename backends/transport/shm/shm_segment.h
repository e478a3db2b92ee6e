// Shared memory that all ranks of a communicator map: created by rank 0, and passed to the others
// as a file descriptor.
#pragma once

#include <cstddef>

#include "backends/backend.h"

namespace backends {

// Unmapped on destruction; the memory is freed with its last mapping, even if processes are killed.
class ShmSegment {
 public:
  // Collective over the context's ranks. Provides zeroed memory. Rank 0 listens on an abstract unix
  // socket (such sockets do not reach beyond the network namespace), both sides authenticate with
  // the group's secret, then the descriptor is passed. So only ranks on this host, of the same
  // user, can map it. Throws PeerError at the context's deadline or if a member dies, Error if
  // there is not enough memory.
  ShmSegment(const BackendContext& context, std::size_t bytes);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace backends
