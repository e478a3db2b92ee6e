// Ends a communicator of NCCL without waiting for it for ever.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "backends/transport/nccl/nccl_library.h"

namespace backends {

constexpr auto kNcclLeaveTimeout = std::chrono::seconds(2);

// ncclCommAbort() signals the kernels that wait for a peer, then waits until every graph with a
// call of the communicator is destroyed. The caller destroys its graphs after it has caught the
// error, so a thread does the waiting. It is started with the communicator: a process that fails
// may get no thread, and the caller would then wait for itself.
class NcclAborter {
 public:
  // Throws std::system_error if there is no thread.
  NcclAborter() : thread_([state = state_] { serve(*state); }) {}
  ~NcclAborter() { finish(); }
  NcclAborter(const NcclAborter&) = delete;
  NcclAborter& operator=(const NcclAborter&) = delete;

  // Called at most once, before finish().
  void abort(const NcclLibrary& nccl, ncclComm_t comm, int device) noexcept {
    const std::lock_guard lock(state_->mutex);
    state_->order = {nccl.ncclCommAbort, comm, device};
    state_->changed.notify_all();
  }

  // Waits for the end of abort(), but no longer than kNcclLeaveTimeout.
  void wait() const noexcept {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, kNcclLeaveTimeout, [this] { return state_->is_idle(); });
  }

  // A thread that has not ended the communicator by then is left behind.
  void finish() {
    if (!thread_.joinable()) return;
    wait();
    bool idle = false;
    {
      const std::lock_guard lock(state_->mutex);
      idle = state_->is_idle();
      state_->stops = true;
      state_->changed.notify_all();
    }
    idle ? thread_.join() : thread_.detach();
  }

 private:
  struct Order {
    decltype(NcclLibrary::ncclCommAbort) call;
    ncclComm_t comm;
    int device;
  };
  // Outlives this if the thread is left behind.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Order> order;
    bool done = false, stops = false;
    bool is_idle() const { return !order || done; }
  };

  static void serve(State& state) {
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.order || state.stops; });
    if (!state.order) return;
    const Order order = *state.order;
    lock.unlock();
    cudaSetDevice(order.device);
    order.call(order.comm);
    lock.lock();
    state.done = true;
    state.changed.notify_all();
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;  // declared last: it uses the state
};

}  // namespace backends
