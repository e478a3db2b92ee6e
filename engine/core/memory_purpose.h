// Makes cuda::MemoryPurpose, which names the purpose of device memory, available to the engine.
#pragma once

#include "engine/core/cuda.h"
#include "io/gpu/device_memory.h"
