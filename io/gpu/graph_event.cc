// Records events as nodes of a captured graph.
#include "io/gpu/graph_event.h"

#include <cuda_runtime_api.h>

namespace base::cuda {

void record_in_graph(Event& event, void* stream) {
  const unsigned flags = is_capturing(stream) ? cudaEventRecordExternal : cudaEventRecordDefault;
  check(static_cast<int>(cudaEventRecordWithFlags(static_cast<cudaEvent_t>(event.handle()),
                                                  static_cast<cudaStream_t>(stream), flags)),
        "cudaEventRecordWithFlags");
}

}  // namespace base::cuda
