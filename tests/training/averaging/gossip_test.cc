// Averaging in random pairs, in whole trainings: who is equal to whom and when, what the mean over
// all ranks does, and what a stop changes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/averaging/policies/gossip_pairs.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using exact_support::expect_in_sync;
using exact_support::kExact;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

// By rank and step: the parameters after each step.
using History = std::vector<std::vector<std::vector<double>>>;

History history_of(int world, std::size_t steps, const Options& options) {
  History values(static_cast<std::size_t>(world), std::vector<std::vector<double>>(steps + 1));
  train(world, options, [&](int rank, engine::TrainState& state) {
    const auto now = state.model.parameters.values.span<double>();
    values[static_cast<std::size_t>(rank)][static_cast<std::size_t>(state.progress.global_step)] = {
        now.begin(), now.end()};
  });
  return values;
}

// The mean over ranks after a step.
std::vector<double> mean_after(const History& values, std::size_t step) {
  std::vector<double> mean(values[0][step].size());
  for (const auto& rank : values)
    for (std::size_t i = 0; i < mean.size(); ++i)
      mean[i] += rank[step][i] / static_cast<double>(values.size());
  return mean;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// 120 samples in batches of 12: ten steps an epoch. K = 3: pairs after steps 3, 6, 9 and 12, all
// ranks at the end of the epoch, step 10, and of the run, step 13.
const Options kPairs =
    with(kExact, "epochs= steps=13 synthetic-size=120 seed=5 sync=gossip sync-every=3");

TEST(Gossip, PairsAreEqualAfterTheirAveragingAndAllRanksAtEnds) {
  for (const int world : {2, 3, 4, 5}) {
    const History values = history_of(world, 13, kPairs);
    engine::GossipPairs pairs(5, world);
    for (std::size_t step = 1; step <= 13; ++step) {
      const auto partners = pairs.draw(static_cast<std::int64_t>(step / 3));
      for (std::size_t a = 0; a < values.size(); ++a)
        for (std::size_t b = 0; b < a; ++b)
          EXPECT_EQ(
              values[a][step] == values[b][step],
              step == 10 || step == 13 || (step % 3 == 0 && partners[a] == static_cast<int>(b)))
              << world << " ranks, step " << step << ", ranks " << b << " and " << a;
    }
  }
}

// With equal shares, a pair's mean leaves the mean over all ranks as it is, and outer steps move it
// as with one mean over all.
TEST(Gossip, MovesTheMeanOverAllRanksAsOneMeanDoes) {
  for (const std::string outer : {"outer-momentum=0", "outer-lr=0.7 outer-momentum=0.9"}) {
    for (const int world : {3, 4}) {
      const Options options =
          with(kExact, "epochs= steps=4 synthetic-size=600 sync-every=2", Options(outer));
      const History gossip = history_of(world, 4, with(options, "sync=gossip")),
                    diloco = history_of(world, 4, with(options, "sync=diloco"));
      EXPECT_LT(largest_difference(mean_after(gossip, 2), diloco[0][2]), 1e-14) << outer;
      EXPECT_GT(largest_difference(gossip[0][2], diloco[0][2]), 1e-6) << outer;
      EXPECT_GT(largest_difference(gossip[0][4], diloco[0][4]), 1e-6) << outer;
    }
  }
}

// The pair is then all there is.
TEST(Gossip, OfTwoRanksIsAveragingOverAll) {
  const std::pair<const char*, const char*> same[] = {
      {"sync=params sync-every=3", "sync=gossip sync-every=3"},
      {"sync=params sync-schedule=0:1,4:3", "sync=gossip sync-schedule=0:1,4:3"},
      {"sync=diloco sync-every=3 outer-momentum=0.5",
       "sync=gossip sync-every=3 outer-momentum=0.5"},
      {"sync=diloco sync-every=3 sync-warmup=2 outer-lr=0.7 outer-momentum=0.9",
       "sync=gossip sync-every=3 sync-warmup=2 outer-lr=0.7 outer-momentum=0.9"}};
  for (const auto& [all, pairs] : same) {
    for (const char* batch : {"batch-size=12", "batch-size=13", "batch-size=1"}) {
      const auto one = train(2, with(kExact, batch, all)),
                 other = train(2, with(kExact, batch, pairs));
      expect_in_sync(other);
      if (std::string(batch) == "batch-size=12") {
        EXPECT_TRUE(same_bits(one[0], other[0], io::Section::kParameter)) << pairs;
      } else {
        EXPECT_LT(distance(one[0], other[0]), 1e-12) << pairs << ' ' << batch;
      }
    }
  }
}

// Every sample moves the result although some steps, and some whole runs, have ranks without any.
TEST(Gossip, EndsInSyncWithUnevenAndEmptyRanks) {
  for (const char* options : {"batch-size=13", "batch-size=13 outer-momentum=0.5", "batch-size=2",
                              "batch-size=1 outer-momentum=0.5", "batch-size=13 shares=5:1:1",
                              "batch-size=13 sync-warmup=3"}) {
    const Options gossip = with("dtype=f64 steps=14 sync=gossip sync-every=2", options);
    const auto ranks = train(3, gossip), again = train(3, gossip);
    expect_in_sync(ranks);
    EXPECT_TRUE(same_bits(ranks[0], again[0], io::Section::kParameter)) << options;
    EXPECT_LT(ranks[0].losses.back(), 3) << options;
  }
}

TEST(Gossip, SaysWhatItDoesAndDid) {
  const auto ranks = train(3, kPairs);
  EXPECT_VALUES(ranks[0].coverage, "6/6 parameters 4 times pairs 2 times all ranks 13 steps");
  EXPECT_EQ(ranks[0].averagings, 6);
  ASSERT_EQ(ranks[0].plan.size(), 2u);
  EXPECT_VALUES(ranks[0].plan[0], "3 steps 4 averagings 2");
  // In each averaging, every third step, two of the three ranks send.
  const std::int64_t each = std::stoll(ranks[0].plan[0].substr(ranks[0].plan[0].find("run, ") + 5));
  EXPECT_VALUES(ranks[0].plan[1], std::to_string((each * 2 + 8) / 9) + " 3 ranks");
  const auto outer = train(2, with(kPairs, "outer-momentum=0.5"));
  EXPECT_CONTAINS(outer[0].coverage, "with 4 outer steps");
}

// The odd one out sends nothing: three ranks average in pairs as often as two do, and send less.
TEST(Gossip, CountsWhatEachRankSends) {
  const auto two = train(2, kPairs), three = train(3, kPairs);
  std::int64_t sent = 0;
  for (const RankResult& rank : three) sent += rank.bytes_sent;
  const std::int64_t each = two[0].bytes_sent / 6;
  for (const RankResult& rank : two) EXPECT_EQ(rank.bytes_sent, 6 * each);
  // Four averagings of two ranks, and two of three.
  EXPECT_EQ(sent, 8 * each + 6 * each);
}

TEST(Gossip, AnEvaluationIsOfTheMeanOverAllRanks) {
  const Options options = "dtype=f64 sync=gossip sync-every=2 eval-every=3s";
  const auto longer = train(3, with(options, "steps=4")),
             until = train(3, with(options, "steps=3"));
  ASSERT_EQ(longer[0].evals.size(), 2u);
  EXPECT_EQ(longer[0].evals[0].loss, until[0].last_eval.loss);
  EXPECT_NE(longer[0].evals[1].loss, until[0].last_eval.loss);
}

// Reports and control values wait for all ranks, so that they are rare.
TEST(Gossip, ReportsOnlyWhereAllRanksAverage) {
  const Options options = "epochs=2 log-every=auto sync-every=2";
  EXPECT_EQ(train(3, with(options, "sync=params"))[0].reports.size(), 10u);
  EXPECT_EQ(train(3, with(options, "sync=gossip"))[0].reports.size(), 2u);
}

class GossipContinuation : public testing::TestWithParam<Options> {};

// A checkpoint averages over all ranks, in the middle of a period, too; the clock and the pairs go
// on regardless.
TEST_P(GossipContinuation, AStopInTheMiddleOfAPeriodChangesNoBit) {
  for (const int world : {3, 4}) {
    const test_support::TemporaryDirectory whole, parts;
    const Options options =
        with("model=convnet synthetic-shape=8x8x1 save-every=3s sync=gossip", GetParam());
    const auto uninterrupted =
        train(world, with(options, "steps=12 save-dir=" + whole.path().string()));
    std::vector<RankResult> last;
    for (const char* steps : {"3", "6", "9", "12"})
      last = train(world, with(options, std::string("steps=") + steps +
                                            " save-dir=" + parts.path().string() + " resume=auto"));
    for (std::size_t r = 0; r < last.size(); ++r)
      EXPECT_EQ(session_runner::difference(uninterrupted[r].whole, last[r].whole), "")
          << world << " ranks, rank " << r;
    EXPECT_EQ(last[0].coverage, uninterrupted[0].coverage);
    EXPECT_EQ(last[0].bytes_sent, uninterrupted[0].bytes_sent);
    expect_in_sync(last);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Outer, GossipContinuation,
    testing::Values(Options("sync-every=4"), Options("sync-every=4 outer-momentum=0.5"),
                    Options("sync-every=2 outer-lr=0.7 outer-momentum=0.9 batch-size=13"),
                    Options("sync-schedule=0:1,4:2 optimizer=adamw lr=0.001 outer-lr=0.8"),
                    Options("sync-every=2 sync-warmup=5 outer-momentum=0.5")));

TEST(Gossip, ContinuesWithAnotherNumberOfRanksAndFromAnotherPolicy) {
  const test_support::TemporaryDirectory folder;
  const Options options = "save-every=5s sync-every=2 save-dir=" + folder.path().string();
  train(2, with(options, "steps=5 sync=diloco"));
  const Options gossip = with(options, "sync=gossip outer-momentum=0.5 resume=auto");
  expect_in_sync(train(2, with(gossip, "steps=10")));
  const auto three = train(3, with(gossip, "steps=15"));
  expect_in_sync(three);
  EXPECT_VALUES(three[0].coverage, "15 steps 7 outer");
  expect_in_sync(train(2, with(options, "steps=20 sync=params resume=auto")));
}

}  // namespace
