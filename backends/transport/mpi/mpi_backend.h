// The backend for the system's MPI library, which is loaded on first use: every build has it.
//
// The ranks are processes that mpirun or srun started. MPI connects them over the fastest network
// it knows, such as InfiniBand, Slingshot or Omni-Path.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "backends/backend.h"

namespace backends {

// Returns why MPI cannot be used in this process: no library, or no launcher of MPI; "" if it can.
// Loads the library, but does not initialize MPI. Any thread.
const std::string& missing_for_mpi();
// Returns e.g. "Open MPI v4.1.4 (/usr/lib/x86_64-linux-gnu/libmpi.so.40)". REQUIRES: nothing is
// missing.
std::string describe_mpi();

// Returns the bytes of one rank in a block of all ranks' data, a multiple of every element's size:
// MPI counts the bytes of a block, with one element more of each rank, by int.
constexpr std::size_t mpi_piece_bytes(int ranks) {
  constexpr std::size_t kMax = 256 << 10;
  const std::size_t fits = INT_MAX / static_cast<std::size_t>(ranks) - sizeof(double);
  return std::min(kMax, fits / sizeof(double) * sizeof(double));
}

// Collective over the context's ranks. Throws PeerError, ConfigurationError.
std::unique_ptr<Communicator> make_mpi_communicator(const BackendContext& context);

}  // namespace backends
