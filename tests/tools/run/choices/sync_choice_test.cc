// --sync auto: which policy follows from which figures, and what is printed.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/run/choices/sync_choice.h"

namespace {

using namespace tools;
using Compression = AveragingOptions::Compression;

// Two ranks on two hosts with a model of 2.5 million parameters.
SyncFigures figures(double mbit, double round_trip_ms, double step_ms) {
  return {.ranks = 2,
          .hosts = 2,
          .elements = 2'500'000,
          .bytes = 10'000'000,
          .fragments = 8,
          .steps = 10'000,
          .step_s = step_ms / 1e3,
          .link_bytes_per_s = mbit * 1e6 / 8,
          .round_trip_s = round_trip_ms / 1e3,
          .link = "ranks 0 and 1 (gloo)"};
}

std::string chosen(const SyncFigures& f, const SyncLimits& limits = {}) {
  const std::vector<SyncCandidate> candidates = sync_candidates(f, limits);
  return options_text(candidates[choose_candidate(candidates)]);
}

TEST(SyncChoice, FollowsFromLinkModelAndStep) {
  struct Case {
    const char* name;
    double mbit, round_trip_ms, step_ms;
    const char* expected;
  };
  const Case cases[] = {
      {"25 Gbit/s", 25'000, 0.05, 100, "--sync grad"},
      {"10 Gbit/s: 8 ms of 100", 10'000, 0.1, 100, "--sync grad"},
      {"1 Gbit/s: 80 ms of 300, a quarter with int8", 1000, 0.2, 300,
       "--sync grad --compress int8"},
      {"1 Gbit/s: 80 ms in 16 steps of 100", 1000, 0.2, 100, "--sync params --sync-every 16"},
      {"100 Mbit/s: 800 ms in 16 steps of 600", 100, 10, 600, "--sync params --sync-every 16"},
      {"10 Mbit/s: 8 s in 64 steps of 2 s", 10, 50, 2000, "--sync params --sync-every 64"},
      {"10 Mbit/s: 2 s with int8 in 64 steps of 400 ms", 10, 50, 400,
       "--sync params --sync-every 64 --compress int8"},
      {"10 Mbit/s: 8 parts of 1 s hidden by 8 steps", 10, 50, 300,
       "--sync streaming --sync-every 64 --sync-overlap 8"},
      {"10 Mbit/s: hidden by 32 steps", 10, 50, 50,
       "--sync streaming --sync-every 256 --sync-overlap 32"},
      {"10 Mbit/s and short steps: only the sparse code fits", 10, 100, 20,
       "--sync diloco --sync-every 256 --compress sparse --outer-momentum 0"},
      {"nothing fits: the least overhead", 0.1, 100, 1,
       "--sync diloco --sync-every 256 --compress sparse --outer-momentum 0"}};
  for (const Case& c : cases)
    EXPECT_EQ(chosen(figures(c.mbit, c.round_trip_ms, c.step_ms)), c.expected) << c.name;
}

TEST(SyncChoice, KeepsWhatTheUserHasGiven) {
  const SyncFigures slow = figures(10, 100, 20), fast = figures(25'000, 0.05, 100);
  EXPECT_EQ(chosen(fast, {.every = 8, .compression = {}}), "--sync params --sync-every 8");
  EXPECT_EQ(chosen(fast, {.every = 100, .compression = {}}), "--sync params --sync-every 100");
  EXPECT_EQ(chosen(slow, {.every = 100, .compression = {}}),
            "--sync diloco --sync-every 100 --compress sparse --outer-momentum 0");
  EXPECT_EQ(chosen(fast, {.every = {}, .compression = Compression::kInt4}),
            "--sync grad --compress int4");
  EXPECT_EQ(chosen(slow, {.every = {}, .compression = Compression::kInt4}),
            "--sync diloco --sync-every 256 --compress int4");
  for (const SyncCandidate& c :
       sync_candidates(slow, {.every = {}, .compression = Compression::kNone}))
    EXPECT_EQ(options_text(c).find("compress"), std::string::npos);
  for (const Compression compression :
       {Compression::kNone, Compression::kInt8, Compression::kInt4, Compression::kSparse})
    for (const std::int64_t every : {1, 4, 5, 16, 17, 64, 65, 1000})
      EXPECT_FALSE(sync_candidates(slow, {.every = every, .compression = compression}).empty())
          << every;
}

// A period must leave averagings before the end, and outer steps be as many as those of the
// figures.
TEST(SyncChoice, SuitsTheLengthOfTheRun) {
  SyncFigures f = figures(10, 100, 20);  // very slow: the longest period that the run allows
  struct Case {
    std::int64_t steps;
    const char* expected;
  };
  const Case cases[] = {
      {6'400, "--sync diloco --sync-every 256 --compress sparse --outer-momentum 0"},
      {6'399, "--sync diloco --sync-every 64 --compress sparse --outer-momentum 0"},
      {1'599, "--sync diloco --sync-every 16 --compress sparse --outer-momentum 0"},
      {399, "--sync params --sync-every 64 --compress int8"},
      {127, "--sync params --sync-every 16 --compress int8"},
      {31, "--sync params --sync-every 4"},
      {7, "--sync grad --compress int8"}};
  for (const Case& c : cases) {
    f.steps = c.steps;
    EXPECT_EQ(chosen(f), c.expected) << c.steps;
  }
  f.steps = 100;
  EXPECT_EQ(chosen(f, {.every = 1000, .compression = {}}),  // given: only the method is chosen
            "--sync streaming --sync-every 1000 --sync-overlap 125");
}

// A period above the longest measured one counts as that one, and the table says so. Ten averagings
// are too few for outer steps.
TEST(SyncChoice, LongPeriodsAreForParametersToo) {
  SyncFigures f = figures(10, 100, 20);
  f.steps = 1'000;
  for (const std::int64_t every : {64, 65, 100}) {
    std::vector<std::string> all;
    for (const SyncCandidate& c : sync_candidates(f, {.every = every, .compression = {}})) {
      all.push_back(options_text(c));
      EXPECT_EQ(c.accuracy.find("not measured") != std::string::npos, every > 64 || all.size() > 1)
          << c.accuracy;
    }
    const std::string params = "--sync params --sync-every " + std::to_string(every);
    EXPECT_EQ(all, (std::vector<std::string>{params, params + " --compress int8"}));
  }
}

TEST(SyncChoice, RanksThatShareMemorySumGradients) {
  SyncFigures f = figures(40'000, 0.01, 0.1);  // 2 ms to send what a step of 0.1 ms computes
  f.hosts = 1;
  f.in_memory = true;
  EXPECT_EQ(chosen(f), "--sync grad");
  EXPECT_EQ(sync_candidates(f, {}).size(), 1u);
  EXPECT_EQ(chosen(f, {.every = 8, .compression = {}}), "--sync params --sync-every 8");
  EXPECT_EQ(chosen(f, {.every = {}, .compression = Compression::kInt8}).find("--sync "), 0u);
}

// 12 % of a step for the gradients: a quarter of the bytes is faster by 8 %, averaging every fourth
// step by 9 %, which is less than the 17 % that 1.2 points are worth.
TEST(SyncChoice, AGainIsWorthItsLossOfAccuracy) {
  SyncFigures f = figures(1000, 0, 80 / 0.12);
  EXPECT_EQ(chosen(f), "--sync grad --compress int8");
  const SyncLimits uncompressed{.every = {}, .compression = Compression::kNone};
  EXPECT_EQ(chosen(f, uncompressed), "--sync grad");
  f.step_s /= 3;  // 36 %
  EXPECT_EQ(chosen(f, uncompressed), "--sync params --sync-every 4");
}

TEST(SyncChoice, EveryStepIsForParametersAlone) {
  const SyncFigures f = figures(1000, 0.2, 300);
  std::vector<std::string> all;
  for (const SyncCandidate& c : sync_candidates(f, {.every = 1, .compression = {}}))
    all.push_back(options_text(c));
  EXPECT_EQ(all, (std::vector<std::string>{"--sync params --sync-every 1",
                                           "--sync params --sync-every 1 --compress int8"}));
}

TEST(SyncChoice, CodesAreSummedInShares) {
  SyncFigures f = figures(1000, 0, 1000);
  f.ranks = f.hosts = 8;
  const std::vector<SyncCandidate> candidates = sync_candidates(f, {});
  ASSERT_EQ(options_text(candidates[0]), "--sync grad");
  ASSERT_EQ(options_text(candidates[1]), "--sync grad --compress int8");
  EXPECT_NEAR(candidates[0].wire_s, 2 * 7 / 8.0 * 0.08, 1e-9);
  EXPECT_NEAR(candidates[1].wire_s, 2 * 7 / 8.0 * candidates[1].bytes_per_step / 125e6, 1e-9);
  f.hosts = 2;  // four ranks on each receive the shares of four others, and their sums
  EXPECT_NEAR(sync_candidates(f, {})[1].wire_s, 5 * 4 / 8.0 * candidates[1].bytes_per_step / 125e6,
              1e-9);
}

TEST(SyncChoice, StreamingHidesOnlyWhatItsThreadCanSend) {
  const auto streaming = [](const SyncFigures& f) {
    for (const SyncCandidate& c : sync_candidates(f, {.every = 64, .compression = {}}))
      if (c.options.front().second == "streaming") return c;
    ADD_FAILURE();
    return SyncCandidate{};
  };
  EXPECT_EQ(streaming(figures(100, 1, 200)).overhead, 0);  // 8 parts of 101 ms, 8 steps each
  const SyncCandidate late = streaming(figures(1, 1, 200));
  EXPECT_GT(late.overhead, 1);  // 80 s in 64 steps of 0.2 s
  EXPECT_NEAR(late.wire_s * 64, 80.008, 1e-6);
}

TEST(SyncChoice, TextHasTheArithmeticAndFiguresOfTheDocumentation) {
  const SyncFigures f = figures(1000, 0.2, 300);
  const std::vector<SyncCandidate> candidates = sync_candidates(f, {});
  const std::string text = sync_choice_text(f, candidates, choose_candidate(candidates));
  EXPECT_VALUES(text, "Sync auto: 2 2 0 1 (gloo) 1000 Mbit/s, 0.2 ms; 10.00 MB 300 ms 10000 steps");
  EXPECT_CONTAINS(text, "--sync grad ");
  EXPECT_CONTAINS(text, "80.200");
  EXPECT_CONTAINS(text, "27 %");
  EXPECT_VALUES(text.substr(text.rfind('\n') + 1),
                "Sync auto: chosen: --sync grad --compress int8 10 %");
  const std::string page =
      test_support::read_text(test_support::source_directory() + "/docs/averaging.md");
  std::size_t figures_found = 0;
  for (const SyncCandidate& c : candidates)
    for (std::size_t at = 0; (at = c.accuracy.find(" %", at)) != std::string::npos; ++at) {
      ASSERT_GE(at, 5u);
      EXPECT_CONTAINS(page, c.accuracy.substr(at - 5, 7));
      ++figures_found;
    }
  EXPECT_GE(figures_found, 10u);
}

}  // namespace
