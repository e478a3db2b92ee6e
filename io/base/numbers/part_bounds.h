// Divides a count into consecutive parts whose sizes differ by at most 1.
#pragma once

#include <concepts>
#include <type_traits>

namespace base {

// Returns the first element of part `part` of `parts`, which is count * part / parts rounded down,
// without the overflow of the product; for part = parts, the count. The part before ends there.
template <std::integral T>
constexpr T part_begin(T count, std::type_identity_t<T> part, std::type_identity_t<T> parts) {
  return count / parts * part + count % parts * part / parts;
}

template <std::integral T>
struct PartBounds {
  T begin, end;
  constexpr T size() const { return end - begin; }
};

// Returns the elements [begin, end) of part `part` of `parts`.
template <std::integral T>
constexpr PartBounds<T> part_bounds(T count, std::type_identity_t<T> part,
                                    std::type_identity_t<T> parts) {
  return {part_begin(count, part, parts), part_begin(count, part + 1, parts)};
}

}  // namespace base
