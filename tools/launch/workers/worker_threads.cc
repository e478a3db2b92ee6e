// Runs ranks as threads and combines their results.
#include "tools/launch/workers/worker_threads.h"

#include <exception>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/backend_error.h"
#include "engine/train/replicas/replica_sync.h"
#include "tools/report/output/run_log.h"

namespace tools {

int run_worker_threads(int count, const std::function<int(int index)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  bool is_consequence = false;  // true if `first` only reports that another rank failed
  int code = 0;
  const auto consequence = [&](std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (first) return;
    first = std::move(error);
    is_consequence = true;
  };
  // No rank begins before all exist: if one cannot be started, the others would wait for it.
  std::promise<bool> all_started;
  const std::shared_future<bool> begins = all_started.get_future().share();
  std::vector<std::thread> threads;
  const auto start = [&](int i) {
    threads.emplace_back([&, i, begins] {
      if (!begins.get()) return;
      try {
        const int result = body(i);
        const std::lock_guard lock(mutex);
        if (code == 0) code = result;
      } catch (const backends::PeerError&) {
        consequence(std::current_exception());
      } catch (const engine::RemoteError&) {
        consequence(std::current_exception());
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first || is_consequence) first = std::current_exception();
        is_consequence = false;
      }
    });
  };
  const auto join = [&](bool begin) {
    all_started.set_value(begin);
    for (std::thread& t : threads) t.join();
  };
  try {
    for (int i = 0; i < count; ++i) start(i);
  } catch (const std::system_error&) {
    join(false);
    throw;
  }
  join(true);
  if (first) std::rethrow_exception(first);
  return code;
}

int run_inproc_ranks(int count, int timeout_ms,
                     const std::function<int(std::unique_ptr<backends::Group>)>& body) {
  auto groups = backends::make_inproc_groups(count, timeout_ms, print_notice);
  return run_worker_threads(
      count, [&](int rank) { return body(std::move(groups[static_cast<std::size_t>(rank)])); });
}

}  // namespace tools
