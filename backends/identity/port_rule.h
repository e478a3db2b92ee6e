// Chooses a job's rendezvous port if none is given, so that jobs that share a host rarely try the
// same one.
#pragma once

#include <string>

#include "backends/identity/launchers.h"

namespace backends {

// The number of ports that all ranks try. The job id in the handshake distinguishes jobs.
inline constexpr int kPortWindow = 16;

struct PortChoice {
  int port = 0;         // first port that this rank tries
  int window = 1;       // number of ports from there on
  ResolvedValue from;   // the port as text, and its source
  std::string warning;  // "" or a line for the user
};

//   auto   MASTER_PORT if it is set; else idr in a SLURM step that has GPUs, else jobid
//   idr    12345 + the smallest GPU id of the step modulo 16, as the modules of IDRIS do
//   jobid  10001 + job number % 10000
//   fixed  MASTER_PORT, or 29500
// Rank 0 listens on the first free port of its window. Other nodes may have other GPUs, so with idr
// the other ranks try the ports of all ids. Without a job id the window is one port, because the
// handshake could not distinguish two jobs. Throws ConfigurationError that names what is missing.
PortChoice choose_port(PortRule rule, bool is_rank_0, const Claim& claim,
                       const Environment& environment);

}  // namespace backends
