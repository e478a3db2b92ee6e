// --bind as a user sees it: the line that says it, and the kernel's word of running ranks.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/base/machine/cpu_affinity.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using program::expect_words;
using program::quick_train;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;

#ifdef HAS_HWLOC
// Of a process's first thread.
std::string allowed_list(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  const std::string name = "Cpus_allowed_list:\t";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return line.substr(name.size());
  return "";
}

// Where the first threads of two ranks may run once they train.
std::vector<std::string> lists_of_ranks(const std::vector<std::string>& options,
                                        const std::map<std::string, std::string>& environment) {
  const test_support::TemporaryDirectory folder;
  const std::string metrics = folder / "metrics";
  std::vector<std::string> arguments = quick_train(
      argv("--spawn 2 --steps 100000000 --log-every 1 --eval-every 0 --metrics", metrics));
  arguments.insert(arguments.end(), options.begin(), options.end());
  CommandResult result;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    result = engine(arguments, environment, 40'000);
    ended = true;
  });
  pid_t parent = 0;
  std::vector<int> workers;
  EXPECT_TRUE(test_support::eventually([&] {
    for (const pid_t pid : test_support::workers_of(getpid()))
      workers = test_support::workers_of(parent = pid);
    return ended || (workers.size() == 2 && std::filesystem::exists(metrics) &&
                     test_support::read_text(metrics).find("\"step\"") != std::string::npos);
  }));
  std::vector<std::string> lists;
  lists.reserve(workers.size());
  for (const int worker : workers) lists.push_back(allowed_list(worker));
  if (parent != 0 && !ended) kill(parent, SIGTERM);
  runner.join();
  EXPECT_EQ(lists.size(), 2u) << result.out << result.err;
  return lists;
}

TEST(Bind, RunningRanksHaveACpuEach) {
  const base::CpuSet all = base::cpus_of_process();
  if (all.count() < 2) GTEST_SKIP() << "needs two CPUs";
  const std::vector<std::string> lists = lists_of_ranks({"--bind", "core"}, {});
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_NE(lists[0], lists[1]);
  for (const std::string& list : lists) {
    EXPECT_EQ(list.find_first_not_of("0123456789"), std::string::npos) << list;
    EXPECT_TRUE(all[static_cast<std::size_t>(std::atoi(list.c_str()))]) << list;
  }
}

TEST(Bind, RunningRanksHaveANodeEach) {
  const std::string all = base::cpus_text(base::cpus_of_process());
  if (all != "0-1") GTEST_SKIP() << "needs the CPUs 0-1 alone, has " << all;
  const std::map<std::string, std::string> two_nodes{{"HWLOC_SYNTHETIC", "numa:2 core:1 pu:1"}};
  EXPECT_EQ(lists_of_ranks({"--bind", "numa"}, two_nodes), (std::vector<std::string>{"0", "1"}));
}

TEST(Bind, TheStartLineSaysIt) {
  const std::string all = base::cpus_text(base::cpus_of_process());
  const std::vector<std::string> one_step{"--steps", "1", "--eval-every", "0", "--bind"};
  const auto with = [&](const char* bind) {
    std::vector<std::string> options = one_step;
    options.emplace_back(bind);
    const CommandResult result = expect_success(engine(quick_train(options)));
    return result.out;
  };
  expect_words(with("core"),
               {"1 rank x 1 thread on cpu (", " | bound to CPU ", ", one core per thread |"});
  expect_words(with("numa"), {" | bound to CPU", ", NUMA node "});
  EXPECT_LACKS(with("none"), "bound to");
  const CommandResult bench =
      expect_success(call("bench step --model mlp --ranks 1 --steps 3 --bind core"));
  expect_words(bench.out, {" bound to CPU"});
}

TEST(Bind, MoreThreadsThanCpusAreRefused) {
  const std::string threads = std::to_string(base::count_of_cpus() + 1);
  const std::vector<std::string> options{"--threads", threads, "--bind", "core"};
  expect_error(engine(quick_train(options)), 78, "--bind core: rank 0 has " + threads + " threads");
}
#else
TEST(Bind, IsRefusedWithoutHwloc) {
  expect_error(engine(quick_train(argv("--bind core"))), 78, "--bind core hwloc");
}
#endif

TEST(Bind, OtherWordsAreRefused) {
  expect_error(engine(quick_train(argv("--bind socket"))), 78, "expected one of none, core, numa");
}

}  // namespace
