// Implements construction, comparison and text of control words.
#include "backends/control_word.h"

#include <algorithm>
#include <utility>

#include "backends/backend_error.h"

namespace backends {

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
  }
  return "?";
}

// The codes are part of the wire format: never reuse one for another type.
constexpr std::pair<DType, std::uint8_t> kWireCodes[] = {{DType::kF32, 0}, {DType::kF64, 1},
                                                         {DType::kI64, 2}, {DType::kU8, 3},
                                                         {DType::kF16, 4}, {DType::kBF16, 5}};

std::uint8_t wire_code(DType type) {
  for (const auto& [known, code] : kWireCodes)
    if (known == type) return code;
  throw Error("internal: " + std::string(to_string(type)) + " is not reduced");
}

std::string_view type_name(const ControlWord& word) {
  for (const auto& [type, code] : kWireCodes)
    if (code == word.type_and_op / 16) return to_string(type);
  return "?";
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

std::string to_string(const ControlWord& word) {
  const auto op = static_cast<ReduceOp>(word.type_and_op % 16);
  std::string text(to_string(word.operation));
  switch (word.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      return text.append(" ")
          .append(to_string(op))
          .append(" of ")
          .append(std::to_string(word.count))
          .append(" ")
          .append(type_name(word));
    case Operation::kBroadcast:
      return text + " of " + std::to_string(word.count) + " bytes from rank " +
             std::to_string(word.root);
    case Operation::kAllGather:
    case Operation::kRegister:
      return text + " of " + std::to_string(word.count) + " bytes";
    case Operation::kBarrier:
      return text;
  }
  return "unknown call (operation " + std::to_string(static_cast<int>(word.operation)) + ")";
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
