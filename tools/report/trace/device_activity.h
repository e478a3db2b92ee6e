// What CUDA devices did for this process, kernel by kernel and copy by copy, as CUPTI tells it.
// The library is loaded at run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

struct DeviceSpan {
  std::string name;  // "engine::gemm_kernel", "copy to device", "fill"
  std::uint32_t device = 0, stream = 0;
  std::int64_t begin_ns = 0, end_ns = 0;  // of the clock of base::Tracer
  std::int64_t bytes = -1;                // of a copy or a fill
};

// From its construction on; of all devices of the process. Ranks that are threads of one process
// have one each: what is recorded is kept until the last of them ends. Kernels of a captured graph
// are seen only if this was there before the graph.
class DeviceActivity {
 public:
  // Does not throw for want of the library: missing() says what is wrong.
  DeviceActivity();
  ~DeviceActivity();
  DeviceActivity(const DeviceActivity&) = delete;
  DeviceActivity& operator=(const DeviceActivity&) = delete;

  // "" where there are records.
  const std::string& missing() const { return missing_; }
  // What `device` did between these times, in the order in which it began. Waits for what CUPTI
  // still holds, not for the device.
  std::vector<DeviceSpan> between(std::uint32_t device, std::int64_t begin_ns,
                                  std::int64_t end_ns) const;

 private:
  std::string missing_;
};

// The function of a kernel's symbol, without result, template arguments and parameters:
// "_ZN6engine4gemmIfEEvPKf" gives "engine::gemm". What is no C++ symbol stays as it is.
std::string kernel_name(const char* symbol);

}  // namespace tools
