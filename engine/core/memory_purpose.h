// What device memory is for, as engine code says it: engine::cuda::MemoryPurpose.
#pragma once

#include "engine/core/cuda.h"
#include "io/gpu/device_memory.h"
