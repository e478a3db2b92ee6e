// Threads take job numbers from one counter.
#include "io/base/threads/parallel_for.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "io/base/machine/cpu_affinity.h"

namespace base {
namespace {

class SharedJobs {
 public:
  SharedJobs(std::size_t jobs, std::size_t workers, std::size_t max_ahead,
             const std::function<void(std::size_t, std::size_t)>& work)
      : jobs_(jobs), max_ahead_(max_ahead), work_(work), under_way_(workers, jobs) {}

  void work_as(std::size_t worker) noexcept {
    while (const std::optional<std::size_t> job = take(worker)) {
      try {
        work_(worker, *job);
      } catch (...) {
        fail(*job, std::current_exception());
      }
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Ends the worker's previous job and returns the next one.
  std::optional<std::size_t> take(std::size_t worker) {
    std::unique_lock lock(mutex_);
    under_way_[worker] = jobs_;
    changed_.notify_all();
    changed_.wait(lock, [this] {
      return failure_ || next_ == jobs_ ||
             next_ < *std::min_element(under_way_.begin(), under_way_.end()) + max_ahead_;
    });
    if (failure_ || next_ == jobs_) return std::nullopt;
    return under_way_[worker] = next_++;
  }

  void fail(std::size_t job, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ && failed_ < job) return;
    failure_ = std::move(failure);
    failed_ = job;
  }

  const std::size_t jobs_, max_ahead_;
  const std::function<void(std::size_t, std::size_t)>& work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> under_way_;  // for each worker; `jobs_`: none. Guarded, as are the
                                        // members below
  std::size_t next_ = 0, failed_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

void parallel_for(std::size_t jobs, std::size_t workers, std::size_t max_ahead,
                  const std::function<void(std::size_t, std::size_t)>& work) {
  workers = std::clamp<std::size_t>(workers, 1, std::max<std::size_t>(jobs, 1));
  SharedJobs shared(jobs, workers, max_ahead, work);
  std::vector<std::thread> threads;
  threads.reserve(workers);
  try {
    const UnboundMoment moment;
    for (std::size_t worker = 1; worker < workers; ++worker)
      threads.emplace_back([&shared, worker] { shared.work_as(worker); });
  } catch (const std::system_error&) {  // the other threads do its jobs
  }
  shared.work_as(0);
  for (std::thread& thread : threads) thread.join();
  shared.rethrow();
}

}  // namespace base
