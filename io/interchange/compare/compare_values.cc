// Element by element.
#include "io/interchange/compare/compare_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/base/numbers/half.h"
#include "io/base/numbers/number_bytes.h"

namespace io {
namespace {

using Bytes = std::span<const std::byte>;

// Returns the distance in representable numbers; -0 and +0 have distance 0. Bits is the signed
// integer of the number's size.
template <class Bits>
std::uint64_t ulp_distance(Bits a, Bits b) {
  const auto place = [](Bits v) {
    return v < 0 ? std::int64_t{std::numeric_limits<Bits>::min()} - std::int64_t{v}
                 : std::int64_t{v};
  };
  const std::int64_t x = place(a), y = place(b);
  return x > y ? static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y)
               : static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x);
}

void note(std::int64_t index, double distance, std::int64_t ulp, ValueReport& report) {
  if (!report.differs) report.first_index = index;
  report.differs = true;
  report.max_absolute = std::isnan(distance) || std::isnan(report.max_absolute)
                            ? std::nan("")
                            : std::max(report.max_absolute, distance);
  report.max_ulp = std::max(report.max_ulp, ulp);
}

// value_of converts the bits to the number as double.
template <class Bits, class ValueOf>
void compare_floats(Bytes a, Bytes b, std::int64_t first, const Tolerance& t, ValueOf value_of,
                    ValueReport& report) {
  for (std::size_t i = 0; i < a.size() / sizeof(Bits); ++i) {
    const Bits p = base::element_at<Bits>(a, i), q = base::element_at<Bits>(b, i);
    if (p == q) continue;
    const double x = value_of(p), y = value_of(q), distance = std::abs(x - y);
    const bool measured = !std::isnan(x) && !std::isnan(y),
               finite = std::isfinite(x) && std::isfinite(y);
    const std::uint64_t ulp = measured ? ulp_distance(p, q) : 0;
    const bool close = finite && (t.relative > 0 || t.absolute > 0) &&
                       distance <= t.absolute + t.relative * std::abs(y);
    const bool near = finite && t.ulp > 0 && ulp <= static_cast<std::uint64_t>(t.ulp);
    if (t.any() && (close || near || (std::isnan(x) && std::isnan(y)))) continue;
    const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    note(first + static_cast<std::int64_t>(i),
         measured && !finite ? std::numeric_limits<double>::infinity() : distance,
         measured ? static_cast<std::int64_t>(std::min(ulp, most)) : -1, report);
  }
}

template <class T>
void compare_integers(Bytes a, Bytes b, std::int64_t first, ValueReport& report) {
  for (std::size_t i = 0; i < a.size() / sizeof(T); ++i) {
    const T x = base::element_at<T>(a, i), y = base::element_at<T>(b, i);
    if (x != y)
      note(first + static_cast<std::int64_t>(i),
           std::abs(static_cast<double>(x) - static_cast<double>(y)), -1, report);
  }
}

}  // namespace

void compare_values(DType type, Bytes a, Bytes b, std::int64_t first, const Tolerance& tolerance,
                    ValueReport& report) {
  const auto as_float = []<class Bits>(Bits bits) {
    return static_cast<double>(std::bit_cast<float>(bits));
  };
  switch (type) {
    case DType::kF32:
      return compare_floats<std::int32_t>(a, b, first, tolerance, as_float, report);
    case DType::kF64:
      return compare_floats<std::int64_t>(
          a, b, first, tolerance, [](std::int64_t bits) { return std::bit_cast<double>(bits); },
          report);
    case DType::kF16:
      return compare_floats<std::int16_t>(
          a, b, first, tolerance,
          [](std::int16_t bits) {
            return static_cast<double>(base::to_float(base::f16{static_cast<std::uint16_t>(bits)}));
          },
          report);
    case DType::kBF16:
      return compare_floats<std::int16_t>(
          a, b, first, tolerance,
          [](std::int16_t bits) {
            return static_cast<double>(
                base::to_float(base::bf16{static_cast<std::uint16_t>(bits)}));
          },
          report);
    case DType::kI64:
      return compare_integers<std::int64_t>(a, b, first, report);
    case DType::kI32:
      return compare_integers<std::int32_t>(a, b, first, report);
    case DType::kU8:
      return compare_integers<std::uint8_t>(a, b, first, report);
  }
}

}  // namespace io
