// Describes a collective call in 16 bytes. It precedes every rank's payload, so that ranks that
// disagree on the operation, type, count or order of calls notice it before any data is used.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backends/communicator.h"

namespace backends {

enum class Operation : std::uint8_t {
  kAllReduce = 1,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kBarrier,
  kRegister
};

std::string_view to_string(Operation operation);

struct ControlWord {
  std::uint64_t count = 0;     // elements; bytes for broadcast and all_gather
  std::uint32_t sequence = 0;  // of the call on its communicator, from 1
  Operation operation{};
  std::uint8_t type_and_op = 0;  // wire code of the type * 16 + ReduceOp, of reductions
  std::uint16_t root = 0;        // of broadcast

  bool operator==(const ControlWord&) const = default;
};
static_assert(sizeof(ControlWord) == 16);

// The code of an element type in a control word. Throws Error for i32, which has no reduction.
std::uint8_t wire_code(DType type);
// The element type of a reduction, for messages: "f32"; "?" for an unknown code.
std::string_view type_name(const ControlWord& word);

ControlWord reduction_word(Operation operation, std::uint32_t sequence, std::size_t count,
                           DType type, ReduceOp op);
// kBroadcast, kAllGather, kBarrier, kRegister (memory for later calls).
ControlWord transfer_word(Operation operation, std::uint32_t sequence, std::size_t bytes,
                          int root = 0);

// "all_reduce sum of 7 f32", "broadcast of 12 bytes from rank 0"; "unknown call
// (...)" for bytes that are not a valid word.
std::string to_string(const ControlWord& word);

// Throws MismatchError: "rank 0 called all_reduce sum of 7 f32, rank 1 all_reduce sum of 8 f32
// (collective 3)".
[[noreturn]] void throw_mismatch(const ControlWord& own, int own_rank, const ControlWord& theirs,
                                 int their_rank);

// Every backend calls this on a peer's word before it uses the payload.
inline void expect_equal(const ControlWord& own, int own_rank, const ControlWord& theirs,
                         int their_rank) {
  if (!(own == theirs)) [[unlikely]]
    throw_mismatch(own, own_rank, theirs, their_rank);
}

// The same for the calls of a whole step: the MismatchError names the first call that differs or
// that only one rank makes.
void expect_equal_plans(std::span<const ControlWord> own, int own_rank,
                        std::span<const ControlWord> theirs, int their_rank);

}  // namespace backends
