// Makes communicators for device memory: NCCL's, or a host communicator with pinned staging
// buffers. Without CUDA all functions throw ConfigurationError (no_device_factory.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/compose/guard/guarded_communicator.h"
#include "backends/device_communicator.h"
#include "backends/group.h"

namespace backends {

// The meaning of a request (CommunicatorRequest::backend, or the group's backend if it is empty):
//   nccl          NCCL or an error
//   auto          NCCL if every rank can use it, else staged, with a notice
//   staged        over the group's backend, or over auto where that is nccl
//   staged:NAME, or the name of any other backend: staged over it
struct DeviceChoice {
  bool nccl = false;
  std::string host;  // the backend to stage over; "": none
};
DeviceChoice choose_for_device(const std::string& requested, const std::string& group_backend);

// Collective over the context's ranks; members[r] describes rank r. May throw any std::exception.
std::unique_ptr<DeviceCommunicator> create_device_communicator(
    const DeviceChoice& choice, LocalStage local_stage, BackendContext context,
    const std::vector<PeerInfo>& members);
// Stages over an existing host communicator.
std::unique_ptr<DeviceCommunicator> stage_for_device(std::unique_ptr<Communicator> host,
                                                     std::chrono::milliseconds timeout,
                                                     const std::vector<int>& members);

}  // namespace backends
