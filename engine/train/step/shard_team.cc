// Threads that wait for the next round.
#include "engine/train/step/shard_team.h"

#include <string>
#include <utility>

#include "io/base/time/trace.h"

namespace engine {

ShardTeam::ShardTeam(std::size_t shards, std::function<void(std::size_t)> compute)
    : compute_(std::move(compute)) {
  try {
    for (std::size_t s = 1; s < shards; ++s)
      threads_.emplace_back([this, s, tracer = base::Tracer::of_this_thread()] {
        const base::TraceThread traced(tracer, "shard " + std::to_string(s));
        serve(s);
      });
  } catch (...) {  // no further thread can be started
    join();
    throw;
  }
}

ShardTeam::~ShardTeam() { join(); }

void ShardTeam::join() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ShardTeam::run() {
  {
    const std::lock_guard lock(mutex_);
    running_ = threads_.size();
    ++round_;
  }
  changed_.notify_all();
  compute_(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
}

void ShardTeam::serve(std::size_t shard) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    lock.unlock();
    compute_(shard);
    lock.lock();
    if (--running_ == 0) changed_.notify_all();
  }
}

}  // namespace engine
