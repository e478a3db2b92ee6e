// Implements the loops of the reductions, compiled once for every x86-64, once for AVX2 and once
// for AVX-512: ENGINE_REDUCTION_ISA names the namespace. Loads and stores go through memcpy into
// registers, which allows any alignment and vectorizes.
#include "backends/reduction_loops.h"

#include <cstdint>

#include "io/base/numbers/half.h"

namespace backends::ENGINE_REDUCTION_ISA {
namespace {

// The functions are in an unnamed namespace, because the linker would merge other inline functions
// with those of the other instruction set.
template <typename T>
T load(const char* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
struct Arithmetic {  // the type of intermediate results
  using Type = T;
  static T widen(T v) { return v; }
  static T narrow(T v) { return v; }
};
template <typename Half>
struct HalfArithmetic {
  using Type = float;
  static float widen(Half v) { return base::to_float(v); }
  static Half narrow(float v) { return base::from_float<Half>(v); }
};
template <>
struct Arithmetic<base::f16> : HalfArithmetic<base::f16> {};
template <>
struct Arithmetic<base::bf16> : HalfArithmetic<base::bf16> {};

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    const T larger = a >= b ? a : b;  // b if either is NaN
    return a != a ? a : larger;
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    const T smaller = a <= b ? a : b;
    return a != a ? a : smaller;
  }
};

// `out` may be `a`, `b` or neither: one loop serves all cases, without run-time alias checks. If
// both operands are NaN, the processor keeps the first one, and the compiler chooses the operand
// order per loop, but ranks that fold the same parts into different outputs must get the same bits.
template <typename T, typename Op>
void loop(char* out, const char* a, const char* b, std::size_t count, Op op) {
  using A = Arithmetic<T>;
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) {
    const T result =
        A::narrow(op(A::widen(load<T>(a + i * sizeof(T))), A::widen(load<T>(b + i * sizeof(T)))));
    __builtin_memcpy(out + i * sizeof(T), &result, sizeof result);
  }
}

template <typename T>
void by_op(void* out, const void* a, const void* b, std::size_t count, ReduceOp op) {
  auto* to = static_cast<char*>(out);
  const auto *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
  switch (op) {
    case ReduceOp::kSum:
      return loop<T>(to, x, y, count, Sum());
    case ReduceOp::kMax:
      return loop<T>(to, x, y, count, Max());
    case ReduceOp::kMin:
      return loop<T>(to, x, y, count, Min());
  }
}

}  // namespace

void reduce_pair(void* out, const void* a, const void* b, std::size_t count, DType type,
                 ReduceOp op) {
  switch (type) {
    case DType::kF32:
      return by_op<float>(out, a, b, count, op);
    case DType::kF64:
      return by_op<double>(out, a, b, count, op);
    case DType::kI64:
      return by_op<std::int64_t>(out, a, b, count, op);
    case DType::kU8:
      return by_op<std::uint8_t>(out, a, b, count, op);
    case DType::kF16:
      return by_op<base::f16>(out, a, b, count, op);
    case DType::kBF16:
      return by_op<base::bf16>(out, a, b, count, op);
    case DType::kI32:
      break;  // reduction.cc rejects it
  }
}

}  // namespace backends::ENGINE_REDUCTION_ISA
