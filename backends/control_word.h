// Describes a collective call in 16 bytes. They precede every rank's payload, so that ranks that
// disagree on the operation, type, count or order of calls detect it before any data is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/base/numbers/element_type.h"

namespace backends {

using base::DType;  // element types of reductions: all but i32
enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };

std::string_view to_string(ReduceOp op);

enum class Operation : std::uint8_t {
  kAllReduce = 1,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kBarrier,
  kRegister,
  kAllToAll
};

std::string_view to_string(Operation operation);

struct ControlWord {
  std::uint64_t count = 0;     // elements; bytes for the others
  std::uint32_t sequence = 0;  // number of the call on its communicator, from 1
  Operation operation{};
  std::uint8_t type_and_op = 0;  // of reductions: wire code of the type * 16 + ReduceOp; of
                                 // broadcast: the purpose
  std::uint16_t root = 0;        // of broadcast; of the others: the purpose

  // REQUIRES: a word of reduction_word().
  DType type() const;
  ReduceOp op() const { return static_cast<ReduceOp>(type_and_op % 16); }
  // A program may give a call a purpose, a number for what it is part of (0: none), so that calls
  // of different parts are not taken for each other. It is in the field that the operation leaves
  // free. Of broadcast: below 256.
  std::uint16_t purpose() const { return operation == Operation::kBroadcast ? type_and_op : root; }
  ControlWord with_purpose(std::uint16_t purpose) const;

  bool operator==(const ControlWord&) const = default;
};
static_assert(sizeof(ControlWord) == 16);

// Returns the code of an element type in a control word. Throws Error for i32, which has no
// reduction.
std::uint8_t wire_code(DType type);
// Returns the element type of a reduction for messages, e.g. "f32"; "?" for an unknown code.
std::string_view type_name(const ControlWord& word);

ControlWord reduction_word(Operation operation, std::uint32_t sequence, std::size_t count,
                           DType type, ReduceOp op);
// For kBroadcast, kAllGather, kAllToAll, kBarrier and kRegister (memory for later calls).
ControlWord transfer_word(Operation operation, std::uint32_t sequence, std::size_t bytes,
                          int root = 0);

// Returns e.g. "all_reduce sum of 7 f32" or "broadcast of 12 bytes from rank 0"; "unknown call
// (...)" for bytes that are not a valid word.
std::string to_string(const ControlWord& word);

// Throws MismatchError, e.g. "rank 0 called all_reduce sum of 7 f32, rank 1 all_reduce sum of 8 f32
// (collective 3)".
[[noreturn]] void throw_mismatch(const ControlWord& own, int own_rank, const ControlWord& theirs,
                                 int their_rank);

// Every backend calls this on a peer's word before it uses the payload.
inline void expect_equal(const ControlWord& own, int own_rank, const ControlWord& theirs,
                         int their_rank) {
  if (!(own == theirs)) [[unlikely]]
    throw_mismatch(own, own_rank, theirs, their_rank);
}

// Does the same for the calls of a whole step: the MismatchError names the first call that differs
// or that only one rank makes.
void expect_equal_plans(std::span<const ControlWord> own, int own_rank,
                        std::span<const ControlWord> theirs, int their_rank);

// Describes what a waiting call waits for.
struct CallWait {
  // The ranks that have not come and the connections that are idle, as text that follows "rank 0
  // has "; "" if unknown.
  std::string text = {};
  // Bytes to another rank are not acknowledged: the wait is for the network.
  bool unacknowledged = false;
};

}  // namespace backends
