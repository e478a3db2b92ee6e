// Instructions of barriers among some of the warps.
#pragma once

#include "tests/emulator/ptx/decode/ptx_program.h"

namespace ptx {

// Options of mbarrier instructions.
constexpr std::int32_t kRelaxed = 1, kDrops = 2, kNoComplete = 4, kByParity = 8;

// Slots: the address; of init the count too.
void init_mbarrier(Warp& w, const Instruction& i);
void invalidate_mbarrier(Warp& w, const Instruction& i);
// Slots: the state, the address, the count (form 'c') or bytes that are expected ('x').
template <char kForm>
void arrive_mbarrier(Warp& w, const Instruction& i);
// Slots: the address, bytes; kSign: +1 expects them, -1 completes them.
template <int kSign>
void count_bytes(Warp& w, const Instruction& i);
// Slots: the predicate, the address, the state or the parity.
void test_mbarrier(Warp& w, const Instruction& i);
void pending_of_state(Warp& w, const Instruction& i);

// Slots: the number, and the count if there is one.
template <bool kWaits, bool kCounts>
void named_barrier(Warp& w, const Instruction& i);

void yield_warp(Warp& w, const Instruction& i);  // nanosleep

}  // namespace ptx
