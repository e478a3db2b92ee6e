// engine doctor: the order of talks, what counts as a bad link, host or clock, and the real program
// on spawned ranks.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include "io/base/files/io_error.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tools/commands/doctor/doctor.h"
#include "tools/launch/group/rank_exchange.h"

namespace {

using namespace tools;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;

TEST(PairRounds, EveryPairOnceAndNobodyTwiceInARound) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    std::set<std::pair<int, int>> met;
    const auto rounds = pair_rounds(ranks);
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_LT(b, ranks);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << ranks;
        EXPECT_TRUE(met.insert({a, b}).second) << ranks << ": " << a << "-" << b;
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2));
    EXPECT_LE(rounds.size(), static_cast<std::size_t>(ranks));
  }
}

TEST(GatherTexts, AnyLengthsAnyBytes) {
  auto groups = backends::make_inproc_groups(3, test_support::deadline_ms(10'000));
  std::vector<std::vector<std::string>> results(3);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      const auto communicator = groups[r]->make_communicator();
      results[r] = gather_texts(*communicator, std::string(r * 1000, static_cast<char>('a' + r)));
      EXPECT_EQ(gather_texts(*communicator, ""), std::vector<std::string>(3));
    });
  for (std::thread& t : threads) t.join();
  for (const auto& result : results)
    EXPECT_EQ(result,
              (std::vector<std::string>{"", std::string(1000, 'b'), std::string(2000, 'c')}));
}

Link link(int a, int b, double latency_us, double gb_s, const std::string& backend = "gloo") {
  return {.a = a,
          .b = b,
          .backend = backend,
          .latency_us = latency_us * 1.1,
          .best_us = latency_us,
          .forward_gb_s = gb_s,
          .back_gb_s = gb_s * 1.1,
          .bytes = 1e6};
}

std::vector<std::string> texts(const std::vector<Finding>& findings, bool bad) {
  std::vector<std::string> list;
  for (const Finding& f : findings)
    if (f.bad == bad) list.push_back(f.text);
  return list;
}

TEST(DiagnoseLinks, OneSlowRankOfThreeMakesTwoOfThreeLinksBad) {
  const std::vector<Finding> findings =
      diagnose_links({link(0, 1, 50, 1), link(0, 2, 20'000, 1), link(1, 2, 20'000, 1)}, 3);
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_VALUES(findings[0].text, "ranks 0 2 (gloo) 20000 us 50 us");
  EXPECT_EQ(findings[0].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(findings[1].ranks, (std::vector<int>{1, 2}));
  EXPECT_VALUES(findings[2].text, "every rank 2");
}

TEST(DiagnoseLinks, OneThinDirection) {
  std::vector<Link> links{link(0, 1, 50, 1), link(0, 2, 50, 1), link(1, 2, 50, 1)};
  links[1].back_gb_s = 0.3;
  const std::vector<Finding> findings = diagnose_links(links, 3);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].text,
            "link between ranks 0 and 2 (gloo) carries little: 0.3000 GB/s to rank 0, others "
            "1.0000 GB/s");
}

TEST(DiagnoseLinks, NoiseOtherBackendsAndBusyHostsAreNotBad) {
  EXPECT_TRUE(diagnose_links({link(0, 1, 1, 4), link(0, 2, 90, 2), link(1, 2, 20, 3)}, 3).empty());
  EXPECT_TRUE(diagnose_links({link(0, 1, 1, 10, "shm"), link(0, 2, 900, 1), link(1, 2, 950, 1)}, 3)
                  .empty());
  EXPECT_TRUE(diagnose_links({link(0, 1, 50'000, 0.001)}, 2).empty());  // nothing to compare with
  EXPECT_TRUE(diagnose_links({}, 1).empty());
  std::vector<Link> busy{link(0, 1, 50, 1), link(0, 2, 50, 1), link(1, 2, 50, 1)};
  busy[2].latency_us = 5000;
  EXPECT_TRUE(texts(diagnose_links(busy, 3), true).empty());
  ASSERT_EQ(texts(diagnose_links(busy, 3), false).size(), 1u);
  EXPECT_EQ(suspicious_links(busy), std::vector<std::size_t>{2});
}

TEST(DiagnoseLinks, WithinAHostItIsANoteAndNoMeasureForLinksBetweenHosts) {
  std::vector<Link> links{link(0, 1, 1, 40), link(0, 2, 500, 1), link(0, 3, 60, 0.9),
                          link(1, 2, 55, 1), link(1, 3, 60, 1),  link(2, 3, 900, 2)};
  links[0].one_host = links[5].one_host = true;
  const std::vector<Finding> findings = diagnose_links(links, 4);
  EXPECT_LINES(texts(findings, true), "ranks 0 and 2 gloo answers 500 us others 55 us");
  const std::vector<std::string> notes = texts(findings, false);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_CONTAINS(notes[0], "ranks 2 and 3 (gloo) answers slowly");
  EXPECT_CONTAINS(notes[1], "ranks 2 and 3 (gloo) carries little");
}

TEST(DiagnoseClocks, BeyondWhatThePingCanTell) {
  std::vector<Link> links{link(0, 1, 50, 1), link(0, 2, 50, 1), link(1, 2, 50, 1)};
  links[0].clock_offset_s = 0.9;
  links[1].clock_offset_s = -3600;
  links[2].clock_offset_s = 7;  // follows from the two
  const std::vector<Finding> findings = diagnose_clocks(links);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_VALUES(findings[0].text, "clock rank 2 3600.000 s behind rank 0");
  links[1].clock_error_s = 3600;
  EXPECT_TRUE(diagnose_clocks(links).empty());
}

TEST(DiagnoseHosts, FolderBuildAndSharedMemory) {
  HostFacts good;
  good.host = good.host_id = "n0";
  good.build = "engine 1";
  good.cores = good.allowed_cores = 4;
  good.shared_memory_free = 1 << 30;
  HostFacts other = good;
  other.rank = 1;
  EXPECT_TRUE(diagnose_hosts({good, other}).empty());
  other.folder_fault = "cannot write";
  other.build = "engine 2";
  good.shared_memory_free = 1 << 20;
  const std::vector<std::string> bad = texts(diagnose_hosts({good, other}), true);
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_CONTAINS(bad[0], "/dev/shm for 2 ranks");
  EXPECT_CONTAINS(bad[1], "rank 1 (n0): --save-dir: cannot write");
  EXPECT_CONTAINS(bad[2], "runs engine 2, rank 0 engine 1");
  good.allowed_cores = 1;
  EXPECT_EQ(texts(diagnose_hosts({good, other}), false).size(), 1u);
}

TEST(HostFactsJson, ReadsBack) {
  auto groups = backends::make_inproc_groups(1, 1000);
  HostFacts facts = host_facts(*groups[0]);
  EXPECT_FALSE(facts.interfaces.empty());
  facts.gpus = {"A \"GPU\""};
  facts.libraries.nccl = "NCCL 2.28.9 (/x)";
  facts.libraries.mpi = "Open MPI v4.1.4 (/y)";
  facts.folder_fault = "bad\n";
  facts.limits = {"57 MiB of memory by /sys/fs/cgroup/memory.max"};
  EXPECT_EQ(to_json(facts_from_json(to_json(facts))), to_json(facts));
  const DoctorReport report{.when = "now",
                            .build = "engine 1",
                            .backend = "single",
                            .backend_reason = "auto",
                            .rendezvous_address = "",
                            .hosts = {facts},
                            .links = {},
                            .findings = {}};
  EXPECT_CONTAINS(to_text(report),
                  "\nrank 0: limited to 57 MiB of memory by /sys/fs/cgroup/memory.max");
  EXPECT_CONTAINS(to_text(report), "\nrank 0: mpi: Open MPI v4.1.4 (/y)\n");
  EXPECT_THROW(facts_from_json("{}"), io::DataError);
  EXPECT_THROW(facts_from_json(""), io::DataError);
}

CommandResult doctor(std::vector<std::string> more) {
  more.insert(more.begin(), {test_support::engine_binary(), "doctor"});
  return test_support::run_command(more, {}, 60'000);
}

TEST(Doctor, SpawnedRanksAreHealthy) {
  const TemporaryDirectory folder;
  const CommandResult result =
      expect_success(doctor({"--spawn", "3", "--save-dir", folder / "new/run"}));
  for (const char* part : {"3 ranks met at 127.0.0.1:", "0 - 1", "0 - 2", "1 - 2", "\nhealthy"})
    EXPECT_CONTAINS(result.out, part) << part;
  EXPECT_TRUE(std::filesystem::is_empty(folder / "new/run"));
  const CommandResult one = expect_success(doctor({"--format", "json"}));
  EXPECT_CONTAINS(one.out, "\"healthy\":true");
}

TEST(Doctor, AFolderThatCannotBeWrittenIsNamed) {
  const CommandResult result = doctor({"--spawn", "2", "--save-dir", "/proc/nowhere"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_CONTAINS(result.out, "BAD   rank 1 (");
  EXPECT_CONTAINS(result.out, "--save-dir: cannot create folder /proc/nowhere");
}

TEST(Doctor, AMissingRankIsNamedInTime) {
  const TemporaryDirectory folder;
  const CommandResult result = doctor({"--rank", "0", "--world-size", "2", "--init-method",
                                       "file://" + (folder / "meet"), "--rdzv-timeout", "1"});
  EXPECT_EQ(result.exit_code, 69) << result.err;
  EXPECT_CONTAINS(result.err, "missing 1 of 2 ranks: 1");
  EXPECT_EQ(result.out, "");
}

TEST(Doctor, ItsHelpHasItsOwnTimeLimits) {
  const std::string help = expect_success(doctor({"--help", "all"})).out;
  const std::size_t option = help.find("--rdzv-timeout");
  ASSERT_NE(option, std::string::npos) << help;
  const std::string text = help.substr(option, help.find("\n  --", option) - option);
  EXPECT_CONTAINS(text, "60");
  EXPECT_EQ(text.find("300"), std::string::npos) << text;
}

TEST(Doctor, ANoticeTellsThatEachTaskStartsAGroup) {
  const std::map<std::string, std::string> task{{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const CommandResult spawned = expect_success(
      test_support::run_command({test_support::engine_binary(), "doctor", "--spawn", "2"}, task));
  EXPECT_VALUES(spawned.err, "several processes WORLD_SIZE=2 starts --spawn 2");
  const CommandResult launched = expect_success(test_support::run_command(
      {test_support::engine_binary(), "launch", "--nproc-per-node", "2", "true"}, task));
  EXPECT_VALUES(launched.err, "several processes (WORLD_SIZE=2) launcher");
}

}  // namespace
