// Runs the shards of a rank, each on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace engine {

class ShardTeam {
 public:
  // compute(shard) must not throw. The first shard has the thread that calls run().
  ShardTeam(std::size_t shards, std::function<void(std::size_t shard)> compute);
  ~ShardTeam();
  ShardTeam(const ShardTeam&) = delete;
  ShardTeam& operator=(const ShardTeam&) = delete;

  // Computes every shard once; returns when all are complete.
  void run();

 private:
  void serve(std::size_t shard);
  void join();

  const std::function<void(std::size_t)> compute_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::size_t running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace engine
