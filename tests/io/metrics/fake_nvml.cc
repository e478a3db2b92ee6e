// Plays the driver's management library: two devices, the second of which does not tell its clocks.
// FAKE_NVML=broken: no driver; FAKE_NVML=none: no device.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {
bool plays(const char* part) {
  const char* text = std::getenv("FAKE_NVML");
  return text != nullptr && std::string_view(text) == part;
}
int number(void* handle) { return static_cast<int>(reinterpret_cast<std::intptr_t>(handle)) - 100; }
struct Address {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};
}  // namespace

extern "C" {
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlInit_v2() { return plays("broken") ? 9 : 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = plays("none") ? 0 : 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** handle) {
  return *handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(100 + i)), 0;
}
int nvmlDeviceGetName(void* handle, char* name, unsigned length) {
  std::snprintf(name, length, "GPU number %d", number(handle));
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* handle, Address* address) {
  std::snprintf(address->text, sizeof address->text, "00000000:0%d:00.0", number(handle) + 1);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* handle, unsigned* rates) {
  rates[0] = static_cast<unsigned>(90 + number(handle));
  rates[1] = 40;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 150'000'000'000, memory[1] = 149'000'000'000, memory[2] = 1'000'000'000;
  return 0;
}
int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : type == 2 ? 3201 : 0;
  return number(handle) == 0 ? 0 : 3;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  return *celsius = 55, sensor == 0 ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 412'500, 0; }
}
