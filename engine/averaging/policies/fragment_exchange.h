// Sums fragments over all ranks while the steps go on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "backends/communicator.h"
#include "engine/core/tensor_view.h"

namespace engine {

// Exchanges in the order of start(), which is the same on all ranks. With `overlap`, a thread of
// its own uses the communicator between start() and wait(); nothing else may use it then.
class FragmentExchange {
 public:
  FragmentExchange(backends::Communicator& communicator, bool overlap);
  ~FragmentExchange();  // aborts the communicator if an exchange is in flight
  FragmentExchange(const FragmentExchange&) = delete;
  FragmentExchange& operator=(const FragmentExchange&) = delete;

  // Starts to replace `values`, one row, by their sum over all ranks. The memory belongs to the
  // exchange until wait().
  void start(TensorView values);
  // Waits until at most `remaining` of the exchanges are in flight. Rethrows the communicator's
  // exception; after that nothing can be started.
  void wait(std::size_t remaining = 0);
  // Waits until none is in flight. Returns how many have ended well.
  std::size_t settle() const;

 private:
  void reduce(const TensorView& values);
  void work();

  backends::Communicator& communicator_;
  const bool overlap_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<TensorView> pending_;  // the first one is in progress
  std::size_t ended_ = 0;           // number of exchanges that ended well
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // declared last: it uses all members above
};

}  // namespace engine
