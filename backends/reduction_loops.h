// Declares the compilations of reduction_loops.cc. See reduce_pair() in reduction.h.
#pragma once

#include <cstddef>

#include "backends/communicator.h"

namespace backends::reduction_baseline {
void reduce_pair(void* out, const void* a, const void* b, std::size_t count, DType type,
                 ReduceOp op);
}
namespace backends::reduction_avx2 {
void reduce_pair(void* out, const void* a, const void* b, std::size_t count, DType type,
                 ReduceOp op);
}
namespace backends::reduction_avx512 {
void reduce_pair(void* out, const void* a, const void* b, std::size_t count, DType type,
                 ReduceOp op);
}
