// Makes communicators and buffers of this rank's GPU.
#include "tools/bench/comm/bench_comm_device.h"

#include "backends/backend_error.h"
#include "io/gpu/usable_devices.h"

namespace tools {
namespace {

// Returns this rank's place on its host, which selects its GPU.
int place_on_host(const backends::Group& group) {
  const auto& peers = group.peers();
  int place = 0;
  for (int r = 0; r < group.rank(); ++r)
    if (peers[static_cast<std::size_t>(r)].host_id ==
        peers[static_cast<std::size_t>(group.rank())].host_id)
      ++place;
  return place;
}

}  // namespace

bool is_device_backend(const std::string& name) {
  return name == "nccl" || name == "staged" || name.starts_with("staged:");
}

std::unique_ptr<backends::DeviceCommunicator> make_device_lane(backends::Group& group,
                                                               backends::Communicator& control,
                                                               const std::string& backend,
                                                               const std::vector<int>& members,
                                                               std::string& why) {
  const std::string missing = engine::cuda::missing();
  std::int64_t lacking = missing.empty() ? -1 : group.rank();
  control.all_reduce(&lacking, 1, base::DType::kI64, backends::ReduceOp::kMax);
  if (lacking >= 0) {
    why = missing.empty() ? "rank " + std::to_string(lacking) + " has no CUDA device" : missing;
    return nullptr;
  }
  const std::vector<int> devices =
      base::cuda::used_devices(engine::cuda::device_count(), base::cuda::unused_devices());
  engine::cuda::use_device(
      devices[static_cast<std::size_t>(place_on_host(group)) % devices.size()]);
  try {
    return group.make_device_communicator({.backend = backend, .members = members});
  } catch (const backends::ConfigurationError& error) {
    why = error.what();
    return nullptr;
  }
}

DeviceMirror::DeviceMirror(std::vector<std::byte>& host)
    : host_(host), device_(host.empty() ? nullptr : engine::cuda::allocate(host.size())) {}

void DeviceMirror::upload(const engine::cuda::Stream& stream) {
  if (device_ == nullptr) return;
  engine::cuda::copy_async(device_, host_.data(), host_.size(), stream.handle());
  stream.synchronize();
}

void DeviceMirror::download(const engine::cuda::Stream& stream) {
  if (device_ == nullptr) return;
  engine::cuda::copy_async(host_.data(), device_, host_.size(), stream.handle());
  stream.synchronize();
}

}  // namespace tools
