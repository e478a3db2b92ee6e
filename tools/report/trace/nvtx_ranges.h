// Loads the tool that NVTX_INJECTION64_PATH names, as Nsight Systems sets it, and passes spans to
// it as NVTX ranges.
#pragma once

#include <string>

#include "io/base/time/trace.h"

namespace tools {

struct NvtxTool {
  const base::SpanListener* ranges = nullptr;  // null: no tool is attached
  std::string missing = {};  // why there is none although the variable names one; else ""
};

// Loads the tool at the first call; the process has one, which is never unloaded. Thread-safe.
const NvtxTool& nvtx_tool();

// Passes the spans of a rank that does not record them to the tool. Constructed and destroyed by
// the thread that trains the rank, before the parts of the training are constructed.
class NvtxRanges {
 public:
  explicit NvtxRanges(const base::SpanListener& ranges);

 private:
  base::Tracer tracer_;
  const base::TraceThread thread_;
};

}  // namespace tools
