// Ranks as threads of this process that are bound: they, their pools, and what they start.
#include "tools/launch/machine/rank_binding.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "engine/core/thread_pool.h"
#include "io/base/files/io_error.h"
#include "io/base/threads/task_queue.h"
#include "tests/support/time_limits.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/run/choices/compute_choice.h"

#ifdef HAS_HWLOC
namespace {

using base::CpuSet;
using tools::Bind;
using tools::ComputeOptions;

ComputeOptions bound(Bind bind, int threads) {
  ComputeOptions options;
  options.device.device = {tools::DeviceName::Kind::kCpu};
  options.bind = bind;
  options.threads = threads;
  return options;
}

// Runs body(rank, compute) on each rank.
void on_ranks(int ranks, const ComputeOptions& options,
              const std::function<void(int, const tools::Compute&)>& body) {
  tools::run_inproc_ranks(
      ranks, test_support::deadline_ms(20'000), [&](std::unique_ptr<backends::Group> group) {
        const auto control = group->make_communicator();
        const tools::Compute compute = tools::choose_compute(options, *group, *control);
        body(group->rank(), compute);
        group->leave();
        return 0;
      });
}

// Of the pool's threads, the calling one first.
std::vector<CpuSet> cpus_of_pool(engine::ThreadPool& pool) {
  std::vector<CpuSet> cpus(static_cast<std::size_t>(pool.threads()));
  pool.run(pool.threads(), [&](std::int64_t first, std::int64_t, int) {
    cpus[static_cast<std::size_t>(first)] = base::cpus_of_this_thread();
  });
  return cpus;
}

CpuSet of_new_thread() {
  CpuSet cpus;
  std::thread([&] { cpus = base::cpus_of_this_thread(); }).join();
  return cpus;
}

TEST(RankBinding, RanksTakeDifferentCpusAndGiveThemBack) {
  const CpuSet all = base::cpus_of_process();
  if (all.count() < 2) GTEST_SKIP() << "needs two CPUs";
  std::mutex mutex;
  CpuSet taken;
  on_ranks(2, bound(Bind::kCore, 1), [&](int, const tools::Compute& compute) {
    const CpuSet share = base::cpus_of_this_thread();
    EXPECT_EQ(of_new_thread(), share);
    {
      const base::BoundThread own(compute.own_cpus());
      engine::ThreadPool pool = compute.make_pool();
      EXPECT_EQ(cpus_of_pool(pool), std::vector{compute.own_cpus()});
      EXPECT_EQ(compute.own_cpus().count(), 1u);
      EXPECT_EQ(compute.own_cpus() & ~share, CpuSet{});
    }
    const std::lock_guard lock(mutex);
    EXPECT_EQ(share & taken, CpuSet{});
    EXPECT_EQ(share & ~all, CpuSet{});
    taken |= share;
  });
  EXPECT_EQ(taken, all);
  EXPECT_EQ(base::cpus_of_this_thread(), all);
}

TEST(RankBinding, ThreadsOfAPoolHaveACpuEachAndHelpersAllOfThem) {
  const CpuSet all = base::cpus_of_process();
  if (all.count() < 2) GTEST_SKIP() << "needs two CPUs";
  on_ranks(1, bound(Bind::kCore, 2), [&](int, const tools::Compute& compute) {
    engine::ThreadPool pool = compute.make_pool();
    const base::BoundThread own(compute.own_cpus());
    const std::vector<CpuSet> cpus = cpus_of_pool(pool);
    ASSERT_EQ(cpus.size(), 2u);
    EXPECT_EQ(cpus[0].count(), 1u);
    EXPECT_EQ(cpus[1].count(), 1u);
    EXPECT_NE(cpus[0], cpus[1]);
    base::TaskQueue jobs;  // as the saving of a checkpoint starts them
    CpuSet of_helper;
    jobs.add([&] { of_helper = base::cpus_of_this_thread(); });
    jobs.finish();
    EXPECT_EQ(of_helper, all);
    EXPECT_EQ(base::cpus_of_this_thread(), cpus[0]);
  });
}

TEST(RankBinding, ThreadsOfARankShareItsNode) {
  const CpuSet all = base::cpus_of_process();
  on_ranks(1, bound(Bind::kNuma, 2), [&](int, const tools::Compute& compute) {
    engine::ThreadPool pool = compute.make_pool();
    for (const CpuSet& cpus : cpus_of_pool(pool)) {
      EXPECT_EQ(cpus, base::cpus_of_this_thread());
      EXPECT_EQ(cpus & ~all, CpuSet{});
    }
  });
}

TEST(RankBinding, RanksWithoutACpuAreRefusedOnAll) {
  const auto ranks = static_cast<int>(base::cpus_of_process().count()) + 1;
  EXPECT_THROW(on_ranks(ranks, bound(Bind::kCore, 1), [](int, const tools::Compute&) {}),
               io::ConfigError);
}

}  // namespace
#endif
