// Ends a communicator of NCCL without waiting for it for ever.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>

#include "backends/transport/nccl/nccl_library.h"
#include "io/base/time/deadline.h"

namespace backends {

constexpr auto kNcclLeaveTimeout = std::chrono::seconds(2);

// ncclCommAbort() signals the kernels that wait for a peer, then waits until every graph with a
// call of the communicator is destroyed. The caller destroys its graphs after it has caught the
// error, so a thread does the waiting.
class NcclAborter {
 public:
  void abort(const NcclLibrary& nccl, ncclComm_t comm, int device) noexcept {
    const auto run = [call = nccl.ncclCommAbort, comm, device, done = done_] {
      cudaSetDevice(device);
      call(comm);
      *done = true;
    };
    try {
      thread_ = std::thread(run);
    } catch (const std::exception&) {
      run();
    }
  }

  void wait() const noexcept {
    const auto until = base::deadline_in(kNcclLeaveTimeout);
    while (thread_.joinable() && !*done_ && !base::has_passed(until))
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  // A thread that has not ended by then is left behind.
  void finish() {
    wait();
    if (thread_.joinable()) *done_ ? thread_.join() : thread_.detach();
  }

 private:
  std::thread thread_;
  const std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace backends
