// Instructions among the blocks of a cluster, and of warpgroups' registers.
#pragma once

#include "tests/emulator/ptx/decode/ptx_program.h"

namespace ptx {

void map_address(Warp& w, const Instruction& i);  // mapa: result, address, rank
template <bool kRelaxedArrival>
void arrive_cluster(Warp& w, const Instruction& i);
void wait_cluster(Warp& w, const Instruction& i);
void fence_mbarrier_init(Warp& w, const Instruction& i);
// Slots: the lane that is elected and its predicate, the members.
void elect(Warp& w, const Instruction& i);
template <bool kMore>
void set_registers(Warp& w, const Instruction& i);

// ld and st of shared::cluster.
Handler find_cluster_load(unsigned bytes, unsigned parts);
Handler find_cluster_store(unsigned bytes, unsigned parts);

}  // namespace ptx
