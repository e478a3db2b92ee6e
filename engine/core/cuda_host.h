// Makes what only host code uses of io/gpu available to the engine, as engine::cuda: the purpose of
// device memory, and times within captured graphs. Kernels are compiled with cuda.h alone.
#pragma once

#include "engine/core/cuda.h"
#include "io/gpu/device_memory.h"
#include "io/gpu/graph_event.h"
