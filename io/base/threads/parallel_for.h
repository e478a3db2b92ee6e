// Jobs that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace base {

// Does the jobs 0 to `jobs` - 1 on `workers` threads, of which the caller is worker 0 (fewer where
// the system gives no more). Whoever is free takes the next one, but none that is `max_ahead` or
// more beyond one that is not done: then it waits. After a job that throws no other is begun; once
// all threads are done the exception of the lowest such job is thrown. As jobs are begun in order,
// one thread alone would have met the same. REQUIRES: max_ahead > 0.
void parallel_for(std::size_t jobs, std::size_t workers, std::size_t max_ahead,
                  const std::function<void(std::size_t worker, std::size_t job)>& work);

}  // namespace base
