// Whether numbers in memory are finite: no NaN, no infinity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/base/element_type.h"

namespace base {

// The first element that is not finite; -1: there is none. As fast as memory is read.
std::int64_t first_not_finite(DType type, const void* data, std::size_t count);

}  // namespace base
