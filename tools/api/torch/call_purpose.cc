// Implements purposes: 6 bits of the element type, 3 of the reduction, 7 of the destination.
#include "tools/api/torch/call_purpose.h"

#include <array>
#include <cstdlib>
#include <functional>
#include <string_view>

namespace engine::pytorch {
namespace {

constexpr int kDestinations = 127;
// Reductions that the library does not name itself. SUM, MIN and MAX are parts of its own calls.
constexpr std::array kReductions{"", "AVG", "PRODUCT", "BAND", "BOR", "BXOR"};

unsigned reduction_code(c10d::ReduceOp op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::AVG:
      return 1;
    case c10d::ReduceOp::PRODUCT:
      return 2;
    case c10d::ReduceOp::BAND:
      return 3;
    case c10d::ReduceOp::BOR:
      return 4;
    case c10d::ReduceOp::BXOR:
      return 5;
    default:
      return 0;
  }
}

std::string type_text(unsigned kind) {
  return kind == 0 ? "?" : c10::toString(static_cast<at::ScalarType>(kind - 1));
}

std::string purpose_text(unsigned purpose) {
  const unsigned reduction = purpose >> 6u & 7u, destination = purpose >> 9u;
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " ") + part; };
  if ((purpose & 63u) != 0) add(type_text(purpose & 63u));
  if (reduction != 0) add(reduction < kReductions.size() ? kReductions[reduction] : "?");
  if (destination != 0) add("to rank " + std::to_string(destination - 1));
  return "(" + text + ")";
}

// Replaces every `before`, number, "]".
std::string replaced(const std::string& message, std::string_view before,
                     const std::function<std::string(unsigned)>& text) {
  std::string result;
  std::size_t at = 0;
  while (true) {
    const std::size_t found = message.find(before, at);
    const std::size_t end = found == std::string::npos ? found : message.find(']', found);
    if (end == std::string::npos) return result + message.substr(at);
    const char* number = message.c_str() + found + before.size();
    result += message.substr(at, found - at) +
              text(static_cast<unsigned>(std::strtoul(number, nullptr, 10)));
    at = end + 1;
  }
}

}  // namespace

std::uint8_t kind_of(at::ScalarType type) {
  return type == at::ScalarType::Undefined ? 0 : static_cast<std::uint8_t>(type) + 1;
}

std::uint16_t purpose_of(at::ScalarType type, c10d::ReduceOp op, int destination) {
  const auto to = static_cast<unsigned>(destination < 0 ? 0 : destination % kDestinations + 1);
  return static_cast<std::uint16_t>((kind_of(type) & 63u) | reduction_code(op) << 6u | to << 9u);
}

std::string with_purposes(const std::string& message) {
  return replaced(replaced(message, "[purpose ", purpose_text), "kind [",
                  [](unsigned kind) { return "type " + type_text(kind); });
}

}  // namespace engine::pytorch
