// Records the activity of CUDA devices for this process, each kernel and each copy, with CUPTI. The
// library is loaded at run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

struct DeviceSpan {
  std::string name;  // e.g. "engine::gemm_kernel", "copy to device", "fill"
  std::uint32_t device = 0, stream = 0;
  std::int64_t begin_ns = 0, end_ns = 0;  // from the clock of base::Tracer
  std::int64_t bytes = -1;                // for a copy or a fill
};

// Records all devices of the process from its construction on. Ranks that are threads of one
// process have one each: records are kept until the last of them ends. Kernels of a captured graph
// are recorded only if this existed before the graph.
class DeviceActivity {
 public:
  // Does not throw if the library is missing: missing() has the reason.
  DeviceActivity();
  ~DeviceActivity();
  DeviceActivity(const DeviceActivity&) = delete;
  DeviceActivity& operator=(const DeviceActivity&) = delete;

  // Returns "" if there are records.
  const std::string& missing() const { return missing_; }
  // Returns the activity of `device` between these times, in order of its beginning. Waits for
  // records that CUPTI still buffers, not for the device.
  std::vector<DeviceSpan> between(std::uint32_t device, std::int64_t begin_ns,
                                  std::int64_t end_ns) const;

 private:
  std::string missing_;
};

// Returns the function of a kernel's symbol, without result, template arguments and parameters:
// "_ZN6engine4gemmIfEEvPKf" gives "engine::gemm". Symbols that are not C++ are unchanged.
std::string kernel_name(const char* symbol);

}  // namespace tools
