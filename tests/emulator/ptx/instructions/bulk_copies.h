// Instructions of the copy engine: cp.async.bulk and cp.async.bulk.tensor.
#pragma once

#include "tests/emulator/ptx/decode/ptx_program.h"

namespace ptx {

// Options.
constexpr std::int32_t kRankBits = 7, kMulticast = 8, kSumShift = 4;

void bulk_to_shared(Warp& w, const Instruction& i);       // address, from, bytes, mbarrier[, mask]
void bulk_between_blocks(Warp& w, const Instruction& i);  // address, from, bytes, mbarrier
void bulk_to_global(Warp& w, const Instruction& i);       // to, address, bytes
void tensor_to_shared(Warp& w, const Instruction& i);     // address, map, place, mbarrier[, mask]
void tensor_to_global(Warp& w, const Instruction& i);     // map, place, address
void commit_bulk(Warp& w, const Instruction& i);
template <bool kReadOnly>
void wait_bulk(Warp& w, const Instruction& i);

}  // namespace ptx
