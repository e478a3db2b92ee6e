// Utilization, memory and power of this host's NVIDIA GPUs, from the driver's management library
// (NVML), which is loaded at run time: libnvidia-ml.so.1, or the file that ENGINE_NVML_LIBRARY
// names. Nothing of it is needed to build.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/metrics/metrics_writer.h"

namespace io {

struct GpuSample {
  int device = 0;                 // the driver's number
  std::string name, bus;          // "NVIDIA H200", "00000000:01:00.0"
  MetricsWriter::Numbers values;  // what the device tells of: utilization and memory_utilization
                                  // (percent of the last sample period), memory_used and
                                  // memory_total (bytes), sm_mhz, memory_mhz, watts, celsius
};

class GpuMonitor {
 public:
  // Throws ConfigError where there is no NVML or it sees no device, saying why.
  GpuMonitor();
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Of every device that the driver shows to this process. Takes milliseconds. What cannot be read
  // is left out.
  std::vector<GpuSample> sample() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace io
