// Runs jobs on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace base {

// Runs the jobs 0 to `jobs` - 1 on `workers` threads, of which the caller is worker 0 (fewer if the
// system provides no more). A free worker takes the next job, but waits while that job is
// `max_ahead` or more beyond the oldest unfinished one. After a job throws, no other job is
// started; when all threads are done, the exception of the lowest such job is rethrown. Since jobs
// are started in order, a single thread would have thrown the same. REQUIRES: max_ahead > 0.
void parallel_for(std::size_t jobs, std::size_t workers, std::size_t max_ahead,
                  const std::function<void(std::size_t worker, std::size_t job)>& work);

}  // namespace base
