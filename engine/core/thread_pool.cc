// ThreadPool: workers spin briefly for the next loop, then sleep on a futex (std::atomic wait).
#include "engine/core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "engine/core/error.h"
#include "io/base/numbers/part_bounds.h"
#include "io/base/threads/spin_pause.h"

namespace engine {
namespace {

// Spins for a few microseconds: longer than the gap between two kernels of a step, shorter than a
// time slice.
constexpr int kSpins = 4000;

void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    base::spin_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  int threads = 1, shares = 1;
  std::int64_t count = 0;
  Call call = nullptr;
  void* body = nullptr;
  alignas(64) std::atomic<std::uint32_t> epoch{0};    // a new value starts a loop
  alignas(64) std::atomic<std::uint32_t> running{0};  // number of workers that still run it
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  // Also destroys a pool for which not all threads could be started.
  ~State() {
    stop.store(true, std::memory_order_relaxed);
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void share(int thread) const {
    for (int s = thread; s < shares; s += threads) {
      const auto [first, last] = base::part_bounds(count, s, shares);
      call(body, first, last, s);
    }
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    while (true) {
      wait_while_equal(epoch, seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      share(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads, int shares, const std::function<void(int)>& begin)
    : state_(std::make_unique<State>()) {
  require(threads >= 1 && shares >= 0,
          "a thread pool has at least one thread and cuts work into at least one share");
  state_->shares = shares == 0 ? threads : shares;
  threads = std::min(threads, state_->shares);
  state_->threads = threads;
  for (int t = 1; t < threads; ++t)
    state_->workers.emplace_back([s = state_.get(), t, begin] {
      if (begin) begin(t);
      s->work(t);
    });
}

ThreadPool::~ThreadPool() = default;
ThreadPool::ThreadPool(ThreadPool&&) noexcept = default;
ThreadPool& ThreadPool::operator=(ThreadPool&&) noexcept = default;

int ThreadPool::threads() const { return state_->shares; }

int ThreadPool::physical_threads() const { return state_->threads; }

void ThreadPool::run_erased(std::int64_t count, Call call, void* body) {
  State& s = *state_;
  s.count = count;
  s.call = call;
  s.body = body;
  if (s.threads == 1) return s.share(0);
  s.running.store(static_cast<std::uint32_t>(s.threads - 1), std::memory_order_relaxed);
  s.epoch.fetch_add(1, std::memory_order_release);
  s.epoch.notify_all();
  s.share(0);
  for (std::uint32_t left; (left = s.running.load(std::memory_order_acquire)) != 0;)
    wait_while_equal(s.running, left);
}

}  // namespace engine
