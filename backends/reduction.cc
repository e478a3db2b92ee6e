// Loops that the compiler vectorizes; memcpy in and out of registers allows any alignment.
#include "backends/reduction.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace backends {
namespace {

template <typename T>
struct Sum {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    } else {
      return static_cast<T>(a + b);
    }
  }
};
template <typename T>
struct Max {
  T operator()(T a, T b) const {
    const T larger = a >= b ? a : b;  // b when either is NaN
    return a != a ? a : larger;
  }
};
template <typename T>
struct Min {
  T operator()(T a, T b) const {
    const T smaller = a <= b ? a : b;
    return a != a ? a : smaller;
  }
};

template <typename T, typename Op>
void fold(void* into, const void* from, std::size_t count, Op op) {
  auto* to = static_cast<char*>(into);
  const auto* in = static_cast<const char*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, to + i * sizeof(T), sizeof(T));
    std::memcpy(&b, in + i * sizeof(T), sizeof(T));
    a = op(a, b);
    std::memcpy(to + i * sizeof(T), &a, sizeof(T));
  }
}

template <typename T>
void fold_by(ReduceOp op, void* into, const void* from, std::size_t count) {
  switch (op) {
    case ReduceOp::kSum:
      return fold<T>(into, from, count, Sum<T>());
    case ReduceOp::kMax:
      return fold<T>(into, from, count, Max<T>());
    case ReduceOp::kMin:
      return fold<T>(into, from, count, Min<T>());
  }
}

}  // namespace

void reduce_into(void* into, const void* from, std::size_t count, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kF32:
      return fold_by<float>(op, into, from, count);
    case DataType::kF64:
      return fold_by<double>(op, into, from, count);
    case DataType::kI64:
      return fold_by<std::int64_t>(op, into, from, count);
    case DataType::kU8:
      return fold_by<std::uint8_t>(op, into, from, count);
  }
}

}  // namespace backends
