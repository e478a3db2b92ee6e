// The part of `engine bench comm` that measures on GPUs: which backends those are, this rank's
// device, and its buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/device_communicator.h"
#include "backends/group.h"
#include "engine/core/cuda.h"

namespace tools {

// nccl, staged, staged:NAME: their buffers lie in device memory.
bool is_device_backend(const std::string& name);

// Collective over the members (all, where empty): a communicator of this rank's GPU, the one at its
// place on its host. Or on all ranks nullptr, and why there is none.
std::unique_ptr<backends::DeviceCommunicator> make_device_lane(backends::Group& group,
                                                               backends::Communicator& control,
                                                               const std::string& backend,
                                                               const std::vector<int>& members,
                                                               std::string& why);

// Device memory beside host memory of the same size.
class DeviceMirror {
 public:
  explicit DeviceMirror(std::vector<std::byte>& host);
  ~DeviceMirror() { engine::cuda::release(device_); }
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;
  void* get() const { return device_; }
  // Both wait until the bytes are there.
  void upload(const engine::cuda::Stream& stream);
  void download(const engine::cuda::Stream& stream);

 private:
  std::vector<std::byte>& host_;
  void* device_ = nullptr;
};

}  // namespace tools
