// Ranks on GPUs for tests: device memory, groups whose ranks each have a device, and whether there
// are devices enough.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "backends/device_communicator.h"
#include "backends/group.h"
#include "tests/support/time_limits.h"

namespace device_harness {

using Bytes = std::vector<unsigned char>;

// "" where `ranks` ranks can have a GPU each, else why not. Does not start CUDA in this process,
// which may fork.
std::string lacking(int ranks);

// What `body` returns when it runs in a forked process, so that this process loads and starts
// nothing.
std::string in_child(const std::function<std::string()>& body);

// A copy of `bytes` on the calling thread's device.
class DeviceBytes {
 public:
  explicit DeviceBytes(const Bytes& bytes);
  explicit DeviceBytes(std::size_t bytes) : DeviceBytes(Bytes(bytes)) {}
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* get() const { return data_; }
  Bytes read() const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Complete when it returns, for every stream.
void copy_to_device(void* to, const Bytes& bytes);

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct RankOptions {
  int timeout_ms = test_support::deadline_ms(20'000);
  bool one_device = false;  // all ranks use device 0
  bool inproc = false;  // run_threads(): a group of threads instead of groups that join over TCP
  std::function<void(const std::string&)> notice = {};
};

// What each rank (a thread with a device of its own) threw, as group_harness::outcomes() has it;
// the group leaves in order where nothing was thrown.
using Body = std::function<void(backends::Group&)>;
std::vector<std::string> run_threads(int world_size, const RankOptions& options, const Body& body);

// The same with a process per rank: "ok", or what it threw, after its kind.
std::vector<std::string> run_forked(int world_size, const RankOptions& options, const Body& body);

// Sets a variable of the environment while it lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value);
  ~Setting();
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const std::string name_;
};

}  // namespace device_harness
