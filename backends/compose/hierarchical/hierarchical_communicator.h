// A communicator of two stages: first among the ranks of a host, then across hosts.
//
// Reductions fold within each host (in the order of its ranks), then over hosts (in the order of
// their first ranks). The bits are the same on all ranks and in all runs, but sums of floats are
// rounded differently from a flat fold over all ranks. If all hosts have equally many ranks, a
// large reduction is a reduce-scatter within the host, an all-reduce of each rank's slice with its
// counterparts on the other hosts, and an all-gather within the host: each byte leaves a host once.
// Small reductions, and hosts with unequal numbers of ranks, go through one leader per host, its
// first rank; so do broadcast, all_gather and all_to_all.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "backends/identity/host_layout.h"

namespace backends {

// `within` connects this host's ranks. `across` connects the ranks at this rank's place on each
// host if `layout.even`, else those at place 0 (nullptr on ranks at other places).
std::unique_ptr<Communicator> make_hierarchical_communicator(std::string name, HostLayout layout,
                                                             std::unique_ptr<Communicator> within,
                                                             std::unique_ptr<Communicator> across);

}  // namespace backends
