// The operands of the general operators; the header of each describes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/general/axes.h"

namespace engine::ops {

struct StridedCopy {
  TensorView x, y;
  Axes<2> axes{};  // of x and y
  std::int64_t x_first = 0, y_first = 0;
  double scale = 1;
  Write write = Write::kOverwrite;
};

// The terms of a sum, of elements of up to three operands.
enum class SumTerm : std::uint8_t {
  kValue,     // u
  kNegative,  // -u
  kProduct,   // u v
  kQuotient,  // u / v
  kDivisor,   // -u v / w^2, the gradient of a quotient v / w
  kChosen,    // u if v is not 0, else 0
  kOther,     // u if v is 0, else 0
};

struct StridedSum {
  SumTerm term = SumTerm::kValue;
  TensorView u, v{}, w{};  // absent if the term does not have it
  TensorView y;
  Axes<4> kept{}, summed{};  // of u, v, w and y; y's steps are 0 in `summed`
  double scale = 1;
  Write write = Write::kOverwrite;
};

// Comparisons are 1 if they hold, else 0, and have no gradients.
enum class BinaryKind : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kGreater,
  kGreaterEqual,
  kEqual
};

struct BroadcastForward {
  BinaryKind kind;
  TensorView a, b, y;
};

struct BroadcastBackward {
  BinaryKind kind;
  TensorView a, b, dy;
  TensorView da{}, db{};  // absent if not needed
  Write da_write = Write::kOverwrite, db_write = Write::kOverwrite;
};

struct ChooseForward {
  TensorView condition, a, b, y;
};

struct ChooseBackward {
  TensorView condition, dy;
  TensorView da{}, db{};  // absent if not needed
  Write da_write = Write::kOverwrite, db_write = Write::kOverwrite;
};

struct ReduceMaxForward {
  TensorView x, y;
  Axes<2> kept, reduced;  // of x and y; y's steps are 0 in `reduced`
};

struct ReduceMaxBackward {
  TensorView x, dy, dx;
  Axes<2> kept, reduced;  // of x (and dx) and dy
  Write write = Write::kOverwrite;
};

// The entries that are gathered, also in the order of their gradients.
struct GatherEntries {
  std::vector<std::int32_t> entries;    // of x, for each position of y
  std::vector<std::int32_t> positions;  // of y, ordered by entry and, for each, ascending

  explicit GatherEntries(std::span<const std::int64_t> indices);
};

struct GatherForward {
  int axis;
  const GatherEntries& chosen;
  TensorView x, y;
};

struct GatherBackward {
  int axis;
  const GatherEntries& chosen;
  TensorView dy, dx;
  Write write = Write::kOverwrite;
};

}  // namespace engine::ops
