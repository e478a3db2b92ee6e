// Checks that numbers in memory are finite: no NaN, no infinity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/base/numbers/element_type.h"

namespace base {

// Returns the index of the first non-finite element; -1 if there is none. As fast as reading
// memory.
std::int64_t first_not_finite(DType type, const void* data, std::size_t count);

// Returns true if both have the same bytes and no non-finite element, in one pass.
bool equal_and_finite(DType type, const void* a, const void* b, std::size_t count);

}  // namespace base
