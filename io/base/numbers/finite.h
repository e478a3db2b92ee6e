// Whether numbers in memory are finite: no NaN, no infinity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/base/numbers/element_type.h"

namespace base {

// The first element that is not finite; -1: there is none. As fast as memory is read.
std::int64_t first_not_finite(DType type, const void* data, std::size_t count);

// Whether both have the same bytes, and no element that is not finite: in one pass over them.
bool equal_and_finite(DType type, const void* a, const void* b, std::size_t count);

}  // namespace base
