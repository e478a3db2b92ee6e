// A fixed set of threads that run one loop at a time. Work is divided statically, so results that
// depend on the division (partial sums) are the same in every run with the same number of shares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace engine {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller, which always takes part; 1 starts no thread. Work is divided
  // into `shares`; 0: one per thread. With a number of shares that does not depend on the machine,
  // results do not depend on its number of threads.
  // Each thread that the pool starts, numbered from 1, first calls `begin(thread)`, which must not
  // throw.
  explicit ThreadPool(int threads, int shares = 0,
                      const std::function<void(int thread)>& begin = {});
  ~ThreadPool();
  ThreadPool(ThreadPool&&) noexcept;
  ThreadPool& operator=(ThreadPool&&) noexcept;  // REQUIRES: neither pool runs a loop

  int threads() const;           // the number of shares of work, for kernels and plans
  int physical_threads() const;  // the number of threads that run them

  // Calls body(first, last, share) for each contiguous share of [0, count); returns when all are
  // done. Shares are [count*t/threads, count*(t+1)/threads). Does not allocate. One caller at a
  // time. REQUIRES: body does not throw and does not call run() on this pool.
  template <class Body>
  void run(std::int64_t count, Body body) {
    if (threads() == 1 || count <= 1) {
      if (count > 0) body(std::int64_t{0}, count, 0);
      return;
    }
    run_erased(
        count,
        [](void* b, std::int64_t first, std::int64_t last, int thread) {
          (*static_cast<Body*>(b))(first, last, thread);
        },
        &body);
  }

 private:
  using Call = void (*)(void* body, std::int64_t first, std::int64_t last, int thread);
  void run_erased(std::int64_t count, Call call, void* body);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine
