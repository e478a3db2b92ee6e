// A fixed set of threads that run one loop at a time. Work is cut statically, so results that depend
// on the cut (partial sums) are the same in every run with the same thread count.
#pragma once

#include <cstdint>
#include <memory>

namespace engine {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller, which always takes part; 1 starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(first, last, thread) for a contiguous share of [0, count) on each thread; returns when all are done.
  // Shares are [count*t/threads, count*(t+1)/threads). Does not allocate. One caller at a time.
  // REQUIRES: body does not throw and does not call run() on this pool.
  template <class Body>
  void run(std::int64_t count, Body body) {
    if (threads() == 1 || count <= 1) {
      if (count > 0) body(std::int64_t{0}, count, 0);
      return;
    }
    run_erased(
        count, [](void* b, std::int64_t first, std::int64_t last, int thread) { (*static_cast<Body*>(b))(first, last, thread); },
        &body);
  }

 private:
  using Call = void (*)(void* body, std::int64_t first, std::int64_t last, int thread);
  void run_erased(std::int64_t count, Call call, void* body);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine
