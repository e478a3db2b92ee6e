// The part of `engine bench comm` that measures on GPUs: its backends, this rank's device, and its
// buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/device_communicator.h"
#include "backends/group.h"
#include "engine/core/cuda.h"

namespace tools {

// True for nccl, staged and staged:NAME, whose buffers are in device memory.
bool is_device_backend(const std::string& name);

// Collective over the members (empty: all): makes a communicator of this rank's GPU, the one at its
// place on its host. If that fails, returns nullptr on all ranks, with the reason.
std::unique_ptr<backends::DeviceCommunicator> make_device_lane(backends::Group& group,
                                                               backends::Communicator& control,
                                                               const std::string& backend,
                                                               const std::vector<int>& members,
                                                               std::string& why);

// Device memory that mirrors host memory of the same size.
class DeviceMirror {
 public:
  explicit DeviceMirror(std::vector<std::byte>& host);
  ~DeviceMirror() { engine::cuda::release(device_); }
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;
  void* get() const { return device_; }
  // Both wait until the copy is complete.
  void upload(const engine::cuda::Stream& stream);
  void download(const engine::cuda::Stream& stream);

 private:
  std::vector<std::byte>& host_;
  void* device_ = nullptr;
};

}  // namespace tools
