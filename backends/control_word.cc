// Implements construction, comparison and text of control words.
#include "backends/control_word.h"

#include <algorithm>
#include <iterator>

#include "backends/backend_error.h"

namespace backends {

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "?";
}

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kRegister:
      return "register_memory";
    case Operation::kAllToAll:
      return "all_to_all";
  }
  return "?";
}

// The types by their codes, which are part of the wire format: only append.
constexpr DType kWireTypes[] = {DType::kF32, DType::kF64, DType::kI64,
                                DType::kU8,  DType::kF16, DType::kBF16};

std::uint8_t wire_code(DType type) {
  const auto* found = std::ranges::find(kWireTypes, type);
  if (found == std::end(kWireTypes))
    throw Error("internal: " + std::string(to_string(type)) + " is not reduced");
  return static_cast<std::uint8_t>(found - std::begin(kWireTypes));
}

DType ControlWord::type() const { return kWireTypes[type_and_op / 16]; }

ControlWord ControlWord::with_purpose(std::uint16_t purpose) const {
  ControlWord word = *this;
  if (operation == Operation::kBroadcast) {
    word.type_and_op = static_cast<std::uint8_t>(purpose);
  } else {
    word.root = purpose;
  }
  return word;
}

std::string_view type_name(const ControlWord& word) {
  return word.type_and_op / 16 < std::size(kWireTypes) ? to_string(word.type()) : "?";
}

ControlWord reduction_word(Operation operation, std::uint32_t sequence, std::size_t count,
                           DType type, ReduceOp op) {
  return {count, sequence, operation,
          static_cast<std::uint8_t>(wire_code(type) * 16 + static_cast<int>(op)), 0};
}

ControlWord transfer_word(Operation operation, std::uint32_t sequence, std::size_t bytes,
                          int root) {
  return {bytes, sequence, operation, 0, static_cast<std::uint16_t>(root)};
}

namespace {

std::string call_text(const ControlWord& word) {
  std::string text(to_string(word.operation));
  switch (word.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      return text.append(" ")
          .append(to_string(word.op()))
          .append(" of ")
          .append(std::to_string(word.count))
          .append(" ")
          .append(type_name(word));
    case Operation::kBroadcast:
      return text + " of " + std::to_string(word.count) + " bytes from rank " +
             std::to_string(word.root);
    case Operation::kAllGather:
    case Operation::kAllToAll:
    case Operation::kRegister:
      return text + " of " + std::to_string(word.count) + " bytes";
    case Operation::kBarrier:
      return text;
  }
  return "unknown call (operation " + std::to_string(static_cast<int>(word.operation)) + ")";
}

}  // namespace

std::string to_string(const ControlWord& word) {
  const std::uint16_t purpose = word.purpose();
  return call_text(word) + (purpose == 0 ? "" : " [purpose " + std::to_string(purpose) + "]");
}

void throw_mismatch(const ControlWord& own, int own_rank, const ControlWord& theirs,
                    int their_rank) {
  const bool own_first = own_rank < their_rank;
  const ControlWord &first = own_first ? own : theirs, &second = own_first ? theirs : own;
  std::string order = " (collective " + std::to_string(first.sequence);
  if (first.sequence != second.sequence) order += " and " + std::to_string(second.sequence);
  throw MismatchError("ranks disagree: rank " + std::to_string(own_first ? own_rank : their_rank) +
                      " called " + to_string(first) + ", rank " +
                      std::to_string(own_first ? their_rank : own_rank) + " " + to_string(second) +
                      order + " of this communicator)");
}

void expect_equal_plans(std::span<const ControlWord> own, int own_rank,
                        std::span<const ControlWord> theirs, int their_rank) {
  const std::size_t common = std::min(own.size(), theirs.size());
  for (std::size_t i = 0; i < common; ++i) expect_equal(own[i], own_rank, theirs[i], their_rank);
  if (own.size() == theirs.size()) return;
  const bool own_longer = own.size() > theirs.size();
  const ControlWord& extra = own_longer ? own[common] : theirs[common];
  throw MismatchError(
      "ranks disagree: rank " + std::to_string(own_rank) + " plans " + std::to_string(own.size()) +
      " collectives, rank " + std::to_string(their_rank) + " " + std::to_string(theirs.size()) +
      "; only rank " + std::to_string(own_longer ? own_rank : their_rank) + " plans " +
      to_string(extra) + " (collective " + std::to_string(extra.sequence) + ")");
}

}  // namespace backends
