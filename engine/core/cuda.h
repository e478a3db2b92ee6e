// CUDA's runtime as engine code calls it: engine::cuda.
#pragma once

#include "io/gpu/cuda_runtime.h"

namespace engine {
namespace cuda = base::cuda;
}  // namespace engine
