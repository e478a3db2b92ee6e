// Times within captured graphs. Apart from cuda_runtime.h, with which all kernels are compiled.
#pragma once

#include "io/gpu/cuda_runtime.h"

namespace base::cuda {

// As event.record(stream), but within a capture the record is part of the graph: each launch sets
// the time of the event. REQUIRES: nothing waits for the event.
void record_in_graph(Event& event, void* stream);

}  // namespace base::cuda
