// Memory that is about to be written for the first time.
#pragma once

#include <cstddef>

namespace base {

// Asks the system for large pages: it then has less work with the first touch. Advice only, for
// blocks of a few large pages and more, before anything is written to them.
void use_large_pages(void* data, std::size_t bytes);

}  // namespace base
