// Which CPUs --bind gives to ranks and threads, on made-up hosts.
#include "tools/launch/machine/rank_placement.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

using base::CpuSet;
using tools::Bind;
using tools::Cpu;
using tools::CpuTopology;
using tools::RankNeed;
using tools::RankPlacement;

CpuSet cpus(const std::vector<int>& numbers) {
  CpuSet set;
  for (const int number : numbers) set.set(static_cast<std::size_t>(number));
  return set;
}

CpuSet range(int first, int last) {
  CpuSet set;
  for (int i = first; i <= last; ++i) set.set(static_cast<std::size_t>(i));
  return set;
}

// Nodes of cores of CPUs, numbered as on most hosts: the first CPU of every core, then the second.
CpuTopology host(int nodes, int cores, int cpus_of_core) {
  CpuTopology topology;
  for (int core = 0; core < nodes * cores; ++core)
    for (int k = 0; k < cpus_of_core; ++k)
      topology.push_back({.number = k * nodes * cores + core, .core = core, .node = core / cores});
  return topology;
}

std::vector<RankNeed> ranks(int count, int threads, const CpuSet& allowed, int most = 1024) {
  std::vector<RankNeed> needs;
  needs.reserve(static_cast<std::size_t>(count));
  for (int r = 0; r < count; ++r)
    needs.push_back({.rank = r, .cpus = allowed, .threads = threads, .max_threads = most});
  return needs;
}

std::string threads_text(const RankPlacement& placement) {
  std::string text;
  for (const CpuSet& set : placement.threads)
    text += (text.empty() ? "" : " ") + base::cpus_text(set);
  return text;
}

// The threads of each rank.
std::vector<std::string> placed(Bind bind, const CpuTopology& topology,
                                const std::vector<RankNeed>& needs) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < needs.size(); ++i)
    all.push_back(threads_text(place_rank(bind, topology, needs, i)));
  return all;
}

std::string fault(Bind bind, const CpuTopology& topology, const std::vector<RankNeed>& needs,
                  std::size_t own = 0) {
  try {
    place_rank(bind, topology, needs, own);
  } catch (const io::ConfigError& error) {
    return error.what();
  }
  return "none";
}

using Texts = std::vector<std::string>;

TEST(CorePlacement, RanksTakeRunsOfCoresAndThreadsACoreEach) {
  const CpuTopology topology = host(1, 8, 2);
  EXPECT_EQ(placed(Bind::kCore, topology, ranks(2, 4, range(0, 15))),
            (Texts{"0 1 2 3", "4 5 6 7"}));
  EXPECT_EQ(placed(Bind::kCore, topology, ranks(3, 2, range(0, 15))), (Texts{"0 1", "2 3", "5 6"}));
  const RankPlacement second = place_rank(Bind::kCore, topology, ranks(2, 2, range(0, 15)), 1);
  EXPECT_EQ(threads_text(second), "4 5");
  EXPECT_EQ(base::cpus_text(second.share), "4-7,12-15") << "where loaders may run, too";
  EXPECT_EQ(second.text, "CPUs 4-5, one core per thread");
}

TEST(CorePlacement, HardwareThreadsAreSharedOnlyByMoreThreadsThanCores) {
  const CpuTopology topology = host(1, 4, 2);
  const std::vector<RankNeed> needs = ranks(2, 3, range(0, 7));
  EXPECT_EQ(placed(Bind::kCore, topology, needs), (Texts{"0 1 4", "2 3 6"}));
  EXPECT_EQ(place_rank(Bind::kCore, topology, needs, 0).text,
            "CPUs 0-1,4, cores shared by threads");
  // Fewer cores than ranks.
  EXPECT_EQ(placed(Bind::kCore, host(1, 1, 2), ranks(2, 1, range(0, 1))), (Texts{"0", "1"}));
  // Whole cores would leave one rank too few.
  EXPECT_EQ(placed(Bind::kCore, topology, ranks(3, 2, range(0, 7))), (Texts{"0 4", "1 5", "2 3"}));
  EXPECT_EQ(placed(Bind::kCore, host(1, 5, 2), ranks(3, 3, range(0, 9))),
            (Texts{"0 1 5", "6 2 7", "3 4 8"}));
  EXPECT_EQ(placed(Bind::kCore, host(1, 2, 2), ranks(4, 1, range(0, 3))),
            (Texts{"0", "2", "1", "3"}));
}

TEST(CorePlacement, NothingOutsideTheProcesssCpusIsUsed) {
  const CpuTopology topology = host(2, 4, 2);
  EXPECT_EQ(placed(Bind::kCore, topology, ranks(2, 2, cpus({3, 4, 5, 7}))), (Texts{"3 4", "5 7"}));
  EXPECT_EQ(placed(Bind::kCore, topology, ranks(1, 2, cpus({3, 11, 5}))), (Texts{"3 5"}));
  EXPECT_EQ(base::cpus_text(place_rank(Bind::kCore, topology, ranks(1, 1, cpus({3, 11})), 0).share),
            "3,11");
}

TEST(CorePlacement, AutomaticThreadsFillTheShareAndNoMore) {
  EXPECT_EQ(placed(Bind::kCore, host(1, 4, 1), ranks(2, 0, range(0, 3))), (Texts{"0 1", "2 3"}));
  EXPECT_EQ(placed(Bind::kCore, host(1, 4, 1), ranks(1, 0, range(0, 3), 3)), (Texts{"0 1 2"}));
  EXPECT_EQ(placed(Bind::kCore, host(1, 5, 1), ranks(2, 0, range(0, 4))), (Texts{"0 1", "2 3 4"}));
}

TEST(CorePlacement, RanksThatWereGivenCpusOfTheirOwnKeepThem) {
  std::vector<RankNeed> needs = ranks(4, 2, range(0, 3));
  needs[1].cpus = needs[3].cpus = range(4, 7);
  EXPECT_EQ(placed(Bind::kCore, host(1, 8, 1), needs), (Texts{"0 1", "4 5", "2 3", "6 7"}));
  needs[3].cpus = range(2, 5);
  EXPECT_VALUES(fault(Bind::kCore, host(1, 8, 1), needs), "--bind core: 0 0-3 3 2-5");
}

TEST(CorePlacement, MoreThreadsThanCpusAreRefusedWithBothNumbers) {
  EXPECT_VALUES(fault(Bind::kCore, host(1, 2, 1), ranks(1, 3, range(0, 1))),
                "--bind core: rank 0 3 2 0-1 1 --bind none");
  for (const std::size_t own : {0u, 1u, 2u})  // every rank knows it
    EXPECT_VALUES(fault(Bind::kCore, host(1, 2, 1), ranks(3, 0, range(0, 1)), own),
                  "--bind core: rank 0 1 0 0-1 3 --bind none");
}

TEST(NodePlacement, RanksAreSpreadEvenlyOverNodesAndThreadsRunAnywhereOnTheirs) {
  const CpuTopology topology = host(2, 2, 2);  // node 0: 0 1 4 5
  const CpuSet all = range(0, 7);
  EXPECT_EQ(placed(Bind::kNuma, topology, ranks(2, 2, all)),
            (Texts{"0-1,4-5 0-1,4-5", "2-3,6-7 2-3,6-7"}));
  EXPECT_EQ(placed(Bind::kNuma, topology, ranks(4, 1, all)),
            (Texts{"0-1,4-5", "0-1,4-5", "2-3,6-7", "2-3,6-7"}));
  EXPECT_EQ(placed(Bind::kNuma, host(4, 1, 1), ranks(2, 1, range(0, 3))), (Texts{"0", "2"}));
  const RankPlacement second = place_rank(Bind::kNuma, topology, ranks(2, 2, all), 1);
  EXPECT_EQ(second.text, "CPUs 2-3,6-7, NUMA node 1");
  EXPECT_EQ(second.share, second.threads.front());
}

TEST(NodePlacement, ThreadsFollowTheNodeWhereNobodyHasSaidHowMany) {
  const CpuTopology topology = host(2, 4, 1);
  EXPECT_EQ(place_rank(Bind::kNuma, topology, ranks(1, 0, range(0, 7), 8), 0).threads.size(), 4u);
  EXPECT_EQ(place_rank(Bind::kNuma, topology, ranks(4, 0, range(0, 7), 2), 3).threads.size(), 2u);
  EXPECT_EQ(place_rank(Bind::kNuma, topology, ranks(1, 9, range(0, 7), 8), 0).threads.size(), 9u)
      << "as --threads says";
}

TEST(NodePlacement, NodesWithoutAllowedCpusAreNone) {
  const RankPlacement only = place_rank(Bind::kNuma, host(2, 2, 1), ranks(2, 1, range(2, 3)), 1);
  EXPECT_VALUES(only.text, "2-3, NUMA 1,");
}

TEST(Placement, ACpuThatTheTopologyLacksIsNamed) {
  EXPECT_VALUES(fault(Bind::kNuma, host(1, 2, 1), ranks(1, 1, range(0, 3))),
                "--bind numa: hwloc 2-3,");
}

#ifdef HAS_HWLOC
TEST(Topology, HwlocsTreeIsRead) {
  const CpuTopology topology = tools::read_topology("--bind core", "numa:2 core:4 pu:2");
  ASSERT_EQ(topology.size(), 16u);
  for (int i = 0; i < 16; ++i) {
    const Cpu& cpu = topology[static_cast<std::size_t>(i)];
    EXPECT_EQ(cpu.number, i);
    EXPECT_EQ(cpu.core, i / 2);
    EXPECT_EQ(cpu.node, i / 8);
  }
  EXPECT_EQ(placed(Bind::kCore, topology, ranks(2, 4, range(0, 15))),
            (Texts{"0 2 4 6", "8 10 12 14"}));
  EXPECT_EQ(placed(Bind::kNuma, topology, ranks(2, 1, range(0, 15))), (Texts{"0-7", "8-15"}));
  EXPECT_THROW(tools::read_topology("--bind core", "no such thing"), io::ConfigError);
}

TEST(Topology, ThisHostsHasAllCpusThatThisProcessMayUse) {
  CpuSet known;
  for (const Cpu& cpu : tools::read_topology("--bind core"))
    known.set(static_cast<std::size_t>(cpu.number));
  EXPECT_EQ(base::cpus_of_process() & ~known, CpuSet{});
}
#else
TEST(Topology, ABuildWithoutHwlocSaysWhatItTakes) {
  EXPECT_VALUES(
      test_support::error_of<io::ConfigError>([] { tools::require_topology("--bind core"); }),
      "--bind core: libhwloc-dev ENGINE_WITH_HWLOC=ON");
}
#endif

}  // namespace
