// Declares and calls a few functions of NVML through its documented C interface (NVML API
// reference, driver 525 and newer).
#include "io/metrics/gpu_monitor.h"

#include <dlfcn.h>

#include <cstdlib>

#include "io/base/files/io_error.h"

namespace io {
namespace {

using Code = int;  // nvmlReturn_t; 0 is success
using Handle = void*;
struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;

}  // namespace

struct GpuMonitor::Library {
  void* file = nullptr;
  Code (*start)() = nullptr;
  Code (*stop)() = nullptr;
  const char* (*text)(Code) = nullptr;
  Code (*count)(unsigned*) = nullptr;
  Code (*handle)(unsigned, Handle*) = nullptr;
  Code (*name)(Handle, char*, unsigned) = nullptr;
  Code (*utilization)(Handle, Utilization*) = nullptr;
  Code (*memory)(Handle, Memory*) = nullptr;
  Code (*clock)(Handle, int, unsigned*) = nullptr;
  Code (*temperature)(Handle, int, unsigned*) = nullptr;
  Code (*power)(Handle, unsigned*) = nullptr;
  struct BusAddress {  // nvmlPciInfo_t
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
  };
  Code (*address)(Handle, BusAddress*) = nullptr;
  struct Device {
    Handle handle;
    std::string name, bus;
  };
  std::vector<Device> devices;

  template <class F>
  void find(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(dlsym(file, symbol));
    if (function == nullptr)
      throw ConfigError(std::string("--log-gpu: this libnvidia-ml has no ") + symbol);
  }
  void expect(Code code, const char* what) const {
    if (code != 0) throw ConfigError(std::string("--log-gpu: ") + what + ": " + text(code));
  }
  ~Library() {
    if (stop != nullptr) stop();
    if (file != nullptr) dlclose(file);
  }
};

GpuMonitor::GpuMonitor() : library_(std::make_unique<Library>()) {
  Library& l = *library_;
  const char* chosen = std::getenv("ENGINE_NVML_LIBRARY");
  l.file = dlopen(chosen != nullptr && *chosen != '\0' ? chosen : "libnvidia-ml.so.1",
                  RTLD_NOW | RTLD_LOCAL);
  if (l.file == nullptr)
    throw ConfigError(std::string("--log-gpu needs the NVIDIA driver's management library: ") +
                      dlerror() + " (ENGINE_NVML_LIBRARY names another file)");
  l.find(l.text, "nvmlErrorString");
  l.find(l.start, "nvmlInit_v2");
  l.find(l.count, "nvmlDeviceGetCount_v2");
  l.find(l.handle, "nvmlDeviceGetHandleByIndex_v2");
  l.find(l.name, "nvmlDeviceGetName");
  l.find(l.utilization, "nvmlDeviceGetUtilizationRates");
  l.find(l.memory, "nvmlDeviceGetMemoryInfo");
  l.find(l.clock, "nvmlDeviceGetClockInfo");
  l.find(l.temperature, "nvmlDeviceGetTemperature");
  l.find(l.power, "nvmlDeviceGetPowerUsage");
  l.find(l.address, "nvmlDeviceGetPciInfo_v3");
  l.expect(l.start(), "nvmlInit_v2");
  l.find(l.stop, "nvmlShutdown");
  unsigned count = 0;
  l.expect(l.count(&count), "nvmlDeviceGetCount_v2");
  if (count == 0) throw ConfigError("--log-gpu: the NVIDIA driver shows no device");
  for (unsigned i = 0; i < count; ++i) {
    Library::Device device{};
    char name[96] = "";
    Library::BusAddress address{};
    l.expect(l.handle(i, &device.handle), "nvmlDeviceGetHandleByIndex_v2");
    l.expect(l.name(device.handle, name, sizeof name), "nvmlDeviceGetName");
    l.expect(l.address(device.handle, &address), "nvmlDeviceGetPciInfo_v3");
    device.name = name;
    device.bus = address.text;
    l.devices.push_back(std::move(device));
  }
}

GpuMonitor::~GpuMonitor() = default;

std::vector<GpuSample> GpuMonitor::sample() const {
  const Library& l = *library_;
  std::vector<GpuSample> samples;
  for (const Library::Device& device : l.devices) {
    GpuSample sample{static_cast<int>(samples.size()), device.name, device.bus, {}};
    const auto add = [&](const char* key, double value) { sample.values.emplace_back(key, value); };
    Utilization busy{};
    if (l.utilization(device.handle, &busy) == 0) {
      add("utilization", busy.gpu);
      add("memory_utilization", busy.memory);
    }
    Memory memory{};
    if (l.memory(device.handle, &memory) == 0) {
      add("memory_used", static_cast<double>(memory.used));
      add("memory_total", static_cast<double>(memory.total));
    }
    unsigned value = 0;
    if (l.clock(device.handle, kSmClock, &value) == 0) add("sm_mhz", value);
    if (l.clock(device.handle, kMemoryClock, &value) == 0) add("memory_mhz", value);
    if (l.power(device.handle, &value) == 0) add("watts", value / 1000.0);
    if (l.temperature(device.handle, kGpuSensor, &value) == 0) add("celsius", value);
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace io
