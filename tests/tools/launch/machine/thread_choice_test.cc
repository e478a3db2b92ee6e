// Threads of a rank: cores, ranks of the host, and what SLURM gave.
#include "tools/launch/machine/thread_choice.h"

#include <gtest/gtest.h>

#include <map>

#include "backends/backend_error.h"
#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

tools::ThreadChoice choose(int ranks, int cores,
                           const std::map<std::string, std::string>& variables) {
  return tools::choose_threads(
      ranks,
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
      },
      cores);
}

TEST(ThreadChoice, FarMoreThreadsThanCoresAreRefused) {
  tools::check_threads(0, 2);
  tools::check_threads(16, 2);
  EXPECT_VALUES(test_support::error_of<io::ConfigError>([] { tools::check_threads(17, 2); }),
                "--threads 17, 2 16, 2");
}

TEST(ThreadChoice, CoresAreSharedByTheRanksOfTheHost) {
  EXPECT_EQ(choose(1, 12, {}).threads, 12);
  EXPECT_EQ(choose(5, 12, {}).threads, 2);
  EXPECT_EQ(choose(50, 12, {}).threads, 1);
  EXPECT_EQ(choose(0, 12, {}).threads, 12) << "nobody knows how many ranks are here";
}

TEST(ThreadChoice, SlurmsCoresPerTaskAreRespectedAndNeverExceedTheCores) {
  const std::map<std::string, std::string> step = {
      {"SLURM_CPUS_PER_TASK", "10"}, {"SLURM_STEP_ID", "0"},
      {"SLURM_PROCID", "5"},         {"SLURM_NODEID", "1"},
      {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}};
  EXPECT_EQ(choose(4, 40, step).threads, 10);
  EXPECT_EQ(choose(4, 40, step).source, "SLURM_CPUS_PER_TASK");
  EXPECT_EQ(choose(8, 40, step).threads, 5) << "each task started two ranks";
  EXPECT_EQ(choose(4, 6, step).threads, 6);
  EXPECT_CONTAINS(choose(4, 6, step).source, "only 6");
  EXPECT_EQ(choose(5, 40, {{"SLURM_CPUS_PER_TASK", "10"}}).threads, 2)
      << "in a batch script the cores are those of all ranks";
  EXPECT_THROW(choose(1, 4, {{"SLURM_CPUS_PER_TASK", "many"}}), backends::ConfigurationError);
}

}  // namespace
