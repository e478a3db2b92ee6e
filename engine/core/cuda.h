// Makes the CUDA runtime of io/gpu available to the engine as engine::cuda.
#pragma once

#include "io/gpu/cuda_runtime.h"

namespace engine {
namespace cuda = base::cuda;
}  // namespace engine
