// Keeps chosen samples of a vector, in place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace io {

// Moves the elements of the chosen samples to the front; the samples are ascending, so nothing is
// overwritten before it is read. `width` is the number of elements per sample.
template <typename Element>
void keep_chosen(std::vector<Element>& elements, std::size_t width,
                 std::span<const std::int64_t> chosen) {
  const auto each = static_cast<std::ptrdiff_t>(width);
  auto to = elements.begin();
  for (const std::int64_t position : chosen) {
    const auto from = elements.begin() + static_cast<std::ptrdiff_t>(position) * each;
    to = from == to ? to + each : std::copy(from, from + each, to);
  }
  elements.erase(to, elements.end());
  elements.shrink_to_fit();
}

}  // namespace io
