// Prepares memory that is about to be written for the first time.
#pragma once

#include <cstddef>

namespace base {

// Requests large pages from the system, which reduce the cost of the first access. This is only a
// hint, for blocks of at least a few large pages, before anything is written to them.
void use_large_pages(void* data, std::size_t bytes);

}  // namespace base
