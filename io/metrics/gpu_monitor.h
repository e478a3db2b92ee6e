// Measures utilization, memory and power of this host's NVIDIA GPUs with the driver's management
// library (NVML), which is loaded at run time: libnvidia-ml.so.1, or the file named in
// ENGINE_NVML_LIBRARY. It is not needed for the build.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/metrics/metrics_writer.h"

namespace io {

struct GpuSample {
  int device = 0;                 // the driver's number
  std::string name, bus;          // "NVIDIA H200", "00000000:01:00.0"
  MetricsWriter::Numbers values;  // values that the device supports: utilization and
                                  // memory_utilization (percent of the last sample period),
                                  // memory_used and memory_total (bytes), sm_mhz, memory_mhz,
                                  // watts, celsius
};

class GpuMonitor {
 public:
  // Throws ConfigError with the reason if NVML is missing or finds no device.
  GpuMonitor();
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Samples every device that the driver shows to this process. Takes milliseconds. Values that
  // cannot be read are omitted.
  std::vector<GpuSample> sample() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace io
