// What averaging policies are to each other, in whole trainings: which equal which, what a stop and
// a checkpoint change, and that replicas end equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using exact_support::expect_in_sync;
using exact_support::kExact;
using exact_support::kSmallMlp;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::train_on_hosts;
using session_runner::with;

// 60 samples in batches of 13: five steps an epoch, uneven on 2, 3 and 4 ranks. f64, so that what
// is compared is the semantics and not the rounding.
const Options kBatchesOf13 = with(kExact, kSmallMlp, "batch-size=13");

struct Pair {
  const char* name;
  Options one, other;
  double tolerance;  // 0: the same bits
  int min_ranks = 1;
};
void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.name; }  // for the test library

class Equivalence : public testing::TestWithParam<Pair> {};

TEST_P(Equivalence, HoldsForOneToFourRanksAndUnevenBatches) {
  for (int world = GetParam().min_ranks; world <= 4; ++world) {
    const auto one = train(world, with(kBatchesOf13, GetParam().one)),
               other = train(world, with(kBatchesOf13, GetParam().other));
    if (GetParam().tolerance == 0)
      EXPECT_TRUE(same_bits(one[0], other[0], io::Section::kParameter)) << world << " ranks";
    else
      EXPECT_LT(distance(one[0], other[0]), GetParam().tolerance) << world << " ranks";
    expect_in_sync(one);
    expect_in_sync(other);
  }
}

const Options kParams3 = "sync=params sync-every=3";
INSTANTIATE_TEST_SUITE_P(
    Policies, Equivalence,
    testing::Values(
        Pair{"ParamsEveryStepWithPlainSgdIsGrad", "momentum=0", "momentum=0 sync=params", 1e-12},
        Pair{"DilocoWithRate1AndNoMomentumIsParams", kParams3,
             "sync=diloco sync-every=3 outer-lr=1 outer-momentum=0", 1e-12},
        Pair{"DilocoWithoutMomentumIsParams", kParams3, "sync=diloco sync-every=3 outer-momentum=0",
             1e-12},
        Pair{"TheFirstOuterStepOfDilocoIsTheMean", "sync=params sync-every=10",
             "sync=diloco sync-every=10", 1e-12},
        Pair{"StreamingInOneFragmentAtOnceIsDiloco", "sync=diloco sync-every=3",
             "sync=streaming sync-every=3 sync-fragments=1 sync-overlap=0 sync-mixing=1", 0},
        Pair{"StreamingAfterAWarmupInOneFragmentIsDiloco",
             "sync=diloco sync-every=3 sync-warmup=2 outer-lr=0.7 outer-momentum=0.9",
             "sync=streaming sync-every=3 sync-warmup=2 outer-lr=0.7 outer-momentum=0.9 "
             "sync-fragments=1 sync-mixing=1",
             0},
        Pair{"StreamingInt8InOneFragmentAtOnceIsDiloco",
             "dtype=f32 compress=int8 sync=diloco sync-every=3",
             "dtype=f32 compress=int8 sync=streaming sync-every=3 sync-fragments=1 sync-overlap=0 "
             "sync-mixing=1",
             0},
        Pair{"StreamingInt4InOneFragmentAtOnceIsDiloco",
             "dtype=f32 compress=int4 sync=diloco sync-every=3 sync-warmup=2",
             "dtype=f32 compress=int4 sync=streaming sync-every=3 sync-warmup=2 sync-fragments=1 "
             "sync-overlap=0 sync-mixing=1",
             0},
        Pair{"StreamingSparseInOneFragmentAtOnceIsDiloco",
             "compress=sparse sparse-ratio=0.2 sync=diloco sync-every=3",
             "compress=sparse sparse-ratio=0.2 sync=streaming sync-every=3 sync-fragments=1 "
             "sync-overlap=0 sync-mixing=1",
             0},
        Pair{"MomentsInEveryAveragingAreTheWholeState",
             "momentum= optimizer=adamw lr=0.001 sync=params sync-every=3 average-state=all",
             "momentum= optimizer=adamw lr=0.001 sync=params sync-every=3 "
             "average-state=momentum:1,second:1",
             0},
        Pair{"SlowmoWithBeta0AndAlpha1IsParams", kParams3,
             "sync=slowmo sync-every=3 slowmo-beta=0 slowmo-alpha=1", 1e-12},
        Pair{"OuterStepsOfHalfTheRateEveryStepAreHalfTheRate", "momentum=0 lr=0.01",
             "momentum=0 lr=0.02 sync=diloco outer-lr=0.5 outer-momentum=0", 1e-12},
        Pair{"PostLocalThatNeverGetsLocalIsGrad",
             {},
             "sync=post-local sync-warmup=10 sync-every=4",
             0},
        Pair{"AScheduleOfOnePhaseIsSyncEvery", kParams3, "sync=params sync-schedule=0:3", 0},
        Pair{"AScheduleOfTwoPhasesIsAWarmup", "sync=params sync-every=3 sync-warmup=4",
             "sync=params sync-schedule=0:1,4:3", 0},
        Pair{"PostLocalByScheduleIsByWarmup", "sync=post-local sync-every=3 sync-warmup=4",
             "sync=post-local sync-schedule=4:3", 0},
        Pair{"TopKOfAllIsGrad", {}, "compress=topk topk-ratio=1", 0},
        Pair{"ParamsEveryStepWithTheStateIsGradThoughThereIsMomentum",
             {},
             "sync=params average-state=all",
             1e-12}),
    [](const auto& p) { return p.param.name; });

// Adam's first moment is linear in the gradients: averaging it leaves no difference between
// replicas; the second is not.
TEST(AverageState, MomentumBringsReplicasNearerToGradientAveraging) {
  const Options every = "sync=params sync-every=2";
  const auto whole = train(2, kBatchesOf13);
  const double without = distance(whole[0], train(2, with(kBatchesOf13, every))[0]);
  const auto averaged = train(2, with(kBatchesOf13, every, "average-state=momentum"));
  EXPECT_NE(distance(whole[0], averaged[0]), without);
  EXPECT_CONTAINS(averaged[0].coverage,
                  "averaged 6/6 parameters, the optimizer's momentum, 6 times in 10 steps");
}

TEST(AverageState, OfAdamwCountsEveryBuffer) {
  const Options base = "optimizer=adamw lr=0.001 sync=params epochs=1 sync-every=5";
  const auto none = train(2, base)[0], second = train(2, with(base, "average-state=second:1"))[0],
             all = train(2, with(base, "average-state=all"))[0];
  EXPECT_CONTAINS(all.coverage, "the optimizer's exp_avg and exp_avg_sq,");
  EXPECT_EQ(second.bytes_sent, 2 * none.bytes_sent);
  EXPECT_EQ(all.bytes_sent, 3 * none.bytes_sent);
}

// Clocks as those of DES-LOC, K = 2: parameters in every averaging, first moments in every fourth
// one, second moments in every second. The end of the first epoch, step 5, averages parameters
// alone.
TEST(AverageState, MomentsHaveClocksOfTheirOwn) {
  constexpr std::size_t kSteps = 12;
  using Values = std::array<std::array<std::vector<double>, kSteps + 1>, 2>;  // of a rank and step
  Values parameters, first, second;
  train(2,
        with(kBatchesOf13,
             "epochs= steps=12 momentum= optimizer=adamw lr=0.001 sync=params sync-every=2 "
             "average-state=momentum:4,second:2"),
        [&](int rank, engine::TrainState& state) {
          const auto r = static_cast<std::size_t>(rank);
          const auto step = static_cast<std::size_t>(state.progress.global_step);
          const auto copy = [](const engine::FlatBuffer& buffer) {
            return std::vector<double>(buffer.span<double>().begin(), buffer.span<double>().end());
          };
          parameters[r][step] = copy(state.model.parameters.values);
          first[r][step] = copy(*state.optimizer.state()[0].buffer);
          second[r][step] = copy(*state.optimizer.state()[1].buffer);
        });
  for (std::size_t step = 1; step <= kSteps; ++step) {
    ASSERT_FALSE(parameters[0][step].empty()) << step;
    EXPECT_EQ(parameters[0][step] == parameters[1][step], step % 2 == 0 || step == 5) << step;
    EXPECT_EQ(first[0][step] == first[1][step], step % 8 == 0) << step;
    EXPECT_EQ(second[0][step] == second[1][step], step % 4 == 0) << step;
  }
}

TEST(AverageState, OfMomentsThatAreAveragedLessSendsLess) {
  const Options base = "optimizer=adamw lr=0.001 sync=params steps=12 sync-every=2 batch-size=13";
  const auto none = train(2, base)[0],
             some = train(2, with(base, "average-state=momentum:4,second:2"))[0];
  EXPECT_EQ(none.averagings, 7);  // six by the clock, and the first epoch's end
  EXPECT_EQ(some.bytes_sent * 7, none.bytes_sent * 11);  // 7 + 1 + 3
  EXPECT_CONTAINS(some.coverage, "the optimizer's exp_avg (every 4) and exp_avg_sq (every 2), 7");
  ASSERT_EQ(some.plan.size(), 3u);
  EXPECT_VALUES(some.plan[1], "exp_avg 1 4 averagings 1 time");
  EXPECT_VALUES(some.plan[2], "exp_avg_sq 1 2 averagings 3 times");
}

// Muon as the inner optimizer of DiLoCo (MuLoCo: Therien et al. 2025).
TEST(Outer, TakesMuonAsTheInnerOptimizer) {
  const Options base =
      with(kSmallMlp, "batch-size=13 lr=0.01 epochs=6 optimizer=muon sync-every=3");
  const auto params = train(2, with(base, "sync=params")),
             diloco = train(2, with(base, "sync=diloco"));
  expect_in_sync(diloco);
  EXPECT_GT(distance(params[0], diloco[0]), 1e-4);
  EXPECT_LT(diloco[0].losses.back(), diloco[0].losses.front());
}

TEST(AverageBuffers, RunningStatisticsAreEqualAndCounted) {
  const Options options = "model=convnet synthetic-shape=8x8x1 epochs=1 sync=params";
  const auto local = train(2, options), averaged = train(2, with(options, "average-buffers=true"));
  EXPECT_FALSE(same_bits(local[0], local[1], io::Section::kBuffer));
  EXPECT_TRUE(same_bits(averaged[0], averaged[1], io::Section::kBuffer));
  EXPECT_EQ(local[0].coverage.find("running statistics"), std::string::npos) << local[0].coverage;
  EXPECT_CONTAINS(averaged[0].coverage,
                  "averaged 10/10 parameters, 4/4 running statistics 5 times in 5 steps");
}

// The mean of one rank is its own parameters; the outer step still moves them. Momentum alone, with
// codes and for late ranks as well.
TEST(Outer, OneRankTakesItsStepsAndSendsNothing) {
  const RankResult none = train(1, with(kBatchesOf13, "momentum=0"))[0];
  const RankResult half = train(1, with(kBatchesOf13, "momentum=0 lr=0.025"))[0];
  for (const char* policy :
       {"sync=diloco outer-lr=0.5 outer-momentum=0", "sync=slowmo slowmo-alpha=0.5 slowmo-beta=0",
        "sync=gossip outer-lr=0.5", "sync=diloco outer-lr=0.5 outer-momentum=0 stale=2",
        "sync=diloco outer-lr=0.5 outer-momentum=0 compress=int4 dtype=f64",
        "sync=streaming outer-lr=0.5 outer-momentum=0 sync-mixing=1 sync-fragments=1"}) {
    const RankResult outer = train(1, with(kBatchesOf13, "momentum=0", policy))[0];
    EXPECT_LT(distance(half, outer), 1e-12) << policy;
    EXPECT_CONTAINS(outer.coverage, "with 10 outer steps");
    EXPECT_EQ(outer.bytes_sent, 0) << policy;
  }
  for (const char* policy : {"sync=params", "sync=post-local sync-warmup=3",
                             "sync=diloco outer-momentum=0", "sync=slowmo slowmo-beta=0",
                             "sync=gossip", "sync=streaming outer-momentum=0 sync-mixing=1"}) {
    const RankResult plain = train(1, with(kBatchesOf13, "momentum=0", policy))[0];
    EXPECT_TRUE(same_bits(none, plain, io::Section::kParameter)) << policy;
    EXPECT_TRUE(plain.plan.empty()) << policy;
  }
}

TEST(Outer, MomentumChangesTheResultAndTheStepsAreCounted) {
  const auto params = train(2, with(kBatchesOf13, "sync=params sync-every=2"));
  for (const char* policy : {"diloco", "slowmo"}) {
    const auto outer =
        train(2, with(kBatchesOf13, std::string("sync=") + policy + " sync-every=2"));
    EXPECT_GT(distance(params[0], outer[0]), 1e-4) << policy;
    // Ten steps: five by the clock, and the end of the first epoch between two of them.
    EXPECT_VALUES(outer[0].coverage, "6 times 10 steps 5 outer");
    expect_in_sync(outer);
  }
}

// Seven steps end within the second epoch: with K = 7 the clock averages then, with a longer one
// the end of the run does.
TEST(Parameters, TheLastEvaluationIsOfTheAveragedModel) {
  const Options options = "dtype=f64 batch-size=13 sync=params steps=7 eval-every=7s";
  const auto by_clock = train(2, with(options, "sync-schedule=0:5,5:2"));
  const auto at_end = train(2, with(options, "sync-every=1000"));
  EXPECT_TRUE(same_bits(by_clock[0], at_end[0], io::Section::kParameter));
  EXPECT_GT(at_end[0].last_eval.samples, 0);
  EXPECT_EQ(by_clock[0].last_eval.loss, at_end[0].last_eval.loss);
}

TEST(PostLocal, SaysWhatItDid) {
  const auto ranks = train(3, with(kBatchesOf13, "sync=post-local sync-warmup=4 sync-every=3"));
  // After step 4: the end of the epoch (5), the clock (7, 10).
  EXPECT_CONTAINS(ranks[0].coverage, "then averaged 6/6 parameters 3 times in 6");
  expect_in_sync(ranks);
}

// --- streaming

using engine::TrainState;

std::vector<double> parameters_of(const TrainState& state) {
  const auto values = state.model.parameters.values.span<double>();
  return {values.begin(), values.end()};
}

// One fragment, sent after steps 4 and 8 and merged, unmixed, after steps 6 and 10: only then are
// the replicas equal, and at the end of the run.
TEST(Streaming, MergesExactlyWhenTheOverlapEnds) {
  constexpr std::size_t kSteps = 11;
  std::array<std::array<std::vector<double>, kSteps + 1>, 2> values;
  train(2,
        with(kBatchesOf13,
             "epochs= steps=11 synthetic-size=600 sync=streaming sync-every=4 sync-fragments=1 "
             "sync-overlap=2 sync-mixing=1"),
        [&](int rank, TrainState& state) {
          values[static_cast<std::size_t>(rank)]
                [static_cast<std::size_t>(state.progress.global_step)] = parameters_of(state);
        });
  for (std::size_t step = 1; step <= kSteps; ++step) {
    ASSERT_FALSE(values[0][step].empty()) << step;
    EXPECT_EQ(values[0][step] == values[1][step], step == 6 || step == 10 || step == kSteps)
        << step;
  }
}

TEST(Streaming, NoStepSendsMoreThanTwiceTheMeanOfAFragment) {
  std::vector<std::int64_t> sent(17);
  std::int64_t fragments = 0;
  const auto ranks =
      train(2,
            "model=convnet synthetic-shape=8x8x1 synthetic-size=600 batch-size=12 steps=16 "
            "sync=streaming sync-every=8 sync-overlap=1",
            [&](int rank, TrainState& state) {
              if (rank != 0) return;
              const engine::PolicyCounters counters = state.policy.counters();
              sent[static_cast<std::size_t>(state.progress.global_step)] =
                  engine::find_counter(counters, "bytes_sent", 0);
              fragments = engine::find_counter(counters, "fragments", 0);
            });
  ASSERT_GE(fragments, 2);
  const std::int64_t whole = sent[8];
  EXPECT_EQ(whole, train(2, "model=convnet synthetic-shape=8x8x1 steps=1 sync=params")[0]
                       .bytes_sent);  // a period sends everything once
  for (std::size_t step = 1; step < 16; ++step)
    EXPECT_LE((sent[step] - sent[step - 1]) * fragments, 2 * whole) << step;
  EXPECT_EQ(sent[15] - sent[7], whole);
}

TEST(Streaming, EndsInSyncWithUnevenAndEmptyRanks) {
  for (const char* options :
       {"batch-size=13 sync-overlap=2", "batch-size=2 sync-overlap=3 sync-mixing=1",
        "batch-size=13 sync-fragments=3 sync-island=host", "batch-size=13 compress=int8",
        "batch-size=2 sync-overlap=3 compress=int4",
        "batch-size=13 sync-overlap=1 compress=sparse"}) {
    const Options streaming = with("dtype=f64 steps=14 sync=streaming sync-every=4", options);
    for (const int world : {3, 4}) {
      const auto ranks = train(world, streaming), again = train(world, streaming);
      expect_in_sync(ranks);
      EXPECT_TRUE(same_bits(ranks[0], again[0], io::Section::kParameter)) << options;
    }
  }
}

TEST(Streaming, SaysWhatItDid) {
  const auto ranks =
      train(2, with(kBatchesOf13, "sync=streaming sync-every=4 sync-fragments=2 sync-overlap=1"));
  // The first fragment is sent after steps 4 and 8, the second after 2, 6 and 10 and then too late
  // to be merged; the ends of both epochs average all.
  EXPECT_VALUES(ranks[0].coverage,
                "6/6 parameters 2 fragments, 7 averagings 10 steps, 4 outer steps");
  EXPECT_CONTAINS(ranks[0].plan.at(1), "in 2 fragments of at most ");
}

TEST(Streaming, SaysWhatItCompresses) {
  const Options options = with(kBatchesOf13, "dtype=f32 sync=streaming sync-every=4");
  const auto plain = train(2, with(options, "sync-fragments=1")),
             less = train(2, with(options, "sync-fragments=1 compress=int4"));
  EXPECT_CONTAINS(less[0].coverage, "parameters (as int4) in 1 fragment, ");
  EXPECT_VALUES(less[0].plan.back(), "changes parameters int4");
  EXPECT_GE(plain[0].bytes_sent, 7.5 * less[0].bytes_sent);
  const auto largest = [](const RankResult& rank) {
    const std::string& line = rank.plan.at(1);
    const std::size_t at = line.find("at most ");
    return at == std::string::npos ? 0 : std::stol(line.substr(at + 8));
  };
  EXPECT_GE(largest(less[0]), 1);
  EXPECT_GE(largest(plain[0]), 7.5 * static_cast<double>(largest(less[0])));
}

TEST(Streaming, RejectsMoreFragmentsThanLayers) {
  EXPECT_VALUES(exact_support::refusal(2, "sync=streaming sync-every=4 sync-fragments=4"),
                "--sync-fragments 4; 3, layers");
}

// Each parameter has made three outer steps in 12 steps, whatever the fragments are: the rule goes
// on with the fourth.
TEST(Streaming, AnotherNumberOfFragmentsKeepsTheOuterStepsOfAParameter) {
  struct Case {
    const char *before, *after, *outer;
  };
  const Case cases[] = {
      {"sync=streaming sync-fragments=2", "sync=diloco", "with 4 outer steps"},
      {"sync=streaming sync-fragments=2", "sync=streaming sync-fragments=1", "with 4 outer steps"},
      {"sync=streaming sync-fragments=3", "sync=streaming sync-fragments=2", "with 8 outer steps"},
      {"sync=diloco", "sync=streaming sync-fragments=2", "with 8 outer steps"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.before) + " -> " + c.after);
    const test_support::TemporaryDirectory folder;
    const Options base = with(kBatchesOf13, "epochs= synthetic-size=600 sync-every=4",
                              "save-dir=" + folder.path().string());
    train(2, with(base, "steps=12", c.before));
    const RankResult resumed = train(2, with(base, "steps=16 resume=auto", c.after))[0];
    EXPECT_CONTAINS(resumed.coverage, c.outer);
    EXPECT_TRUE(std::ranges::any_of(resumed.plan, [](const std::string& line) {
      return test_support::has_values(line, "momentum 0.2 4 to 4");
    })) << testing::PrintToString(resumed.plan);
  }
}

TEST(Streaming, ResumesWithAnotherNumberOfFragments) {
  const test_support::TemporaryDirectory folder;
  const Options base = with(kBatchesOf13, "epochs= save-every=5s sync=streaming sync-every=4",
                            "save-dir=" + folder.path().string());
  train(2, with(base, "steps=5 sync-fragments=3 sync-overlap=2"));
  const auto resumed = train(2, with(base, "steps=15 sync-fragments=2 resume=auto"));
  expect_in_sync(resumed);
  EXPECT_CONTAINS(resumed[0].coverage, "in 2 fragments");
}

// --- hosts

TEST(Islands, EveryRankAloneIsPlainParameterAveraging) {
  const auto plain = train(3, with(kBatchesOf13, kParams3));
  const auto alone =
      train_on_hosts({"a", "b", "c"}, with(kBatchesOf13, kParams3, "sync-island=host"));
  EXPECT_LT(distance(plain[0], alone[0]), 1e-12);
}

TEST(Islands, OneHostIsGradientAveraging) {
  const auto whole = train(3, kBatchesOf13),
             island = train(3, with(kBatchesOf13, kParams3, "sync-island=host"));
  EXPECT_LT(distance(whole[0], island[0]), 1e-12);
  EXPECT_CONTAINS(island[0].coverage, "within 1 host, averaged");
}

// A host of two ranks is one replica: the same as one rank with the samples of both. 12 samples a
// step: 6 and 6 on two ranks, 3 + 3 and 3 + 3 on two hosts of two.
TEST(Islands, AHostOfTwoRanksIsOneReplica) {
  const Options options = with(kBatchesOf13, "batch-size=12");
  for (const char* policy : {"params", "diloco", "slowmo"}) {
    const Options local = std::string("sync=") + policy + " sync-every=3";
    const auto two = train(2, with(options, local));
    const auto four =
        train_on_hosts({"a", "a", "b", "b"}, with(options, local, "sync-island=host"));
    EXPECT_LT(distance(two[0], four[0]), 1e-12) << policy;
    expect_in_sync(four);
    EXPECT_VALUES(four[0].coverage, "2 hosts, gradients 6/6 parameters 10 steps");
  }
}

TEST(Islands, OfUnequalSizeWeighBySamplesAndMixWithAWarmup) {
  const Options options =
      with(kBatchesOf13, "sync=post-local sync-warmup=2 sync-every=4 sync-island=host");
  const auto ranks = train_on_hosts({"a", "b", "b", "b"}, options);
  expect_in_sync(ranks);
  EXPECT_GT(distance(train(4, kBatchesOf13)[0], ranks[0]), 1e-6);
}

// --- compression

class Compression : public testing::TestWithParam<Options> {};

TEST_P(Compression, LearnsKeepsReplicasEqualAndSendsLess) {
  for (const int world : {2, 3, 4}) {
    const Options options = "epochs=6 dtype=f32";
    const auto plain = train(world, with(kBatchesOf13, options)),
               less = train(world, with(kBatchesOf13, options, GetParam()));
    expect_in_sync(less);
    EXPECT_LT(less[0].bytes_sent, plain[0].bytes_sent * 0.6);
    EXPECT_NEAR(less[0].losses.back(), plain[0].losses.back(),
                0.05);  // of a loss that began at 1.9
  }
}

INSTANTIATE_TEST_SUITE_P(All, Compression,
                         testing::Values(Options("compress=bf16"),
                                         Options("compress=bf16 bucket-cap-mb=0.01"),
                                         Options("compress=topk topk-ratio=0.05"),
                                         Options("compress=powersgd powersgd-rank=2"),
                                         Options("compress=int8"), Options("compress=int4"),
                                         Options("compress=sparse sparse-ratio=0.1 "
                                                 "sparse-warmup=0")));

// Lin et al., 2017: each rank's momentum before the selection replaces that of the optimizer.
TEST(Compression, MomentumBeforeTheSelectionLearnsFaster) {
  const Options options = with(
      kBatchesOf13, "model=mlp epochs=20 dtype=f32 compress=sparse sparse-warmup=0 momentum=0");
  const auto without = train(2, options), momentum = train(2, with(options, "sparse-momentum=0.9"));
  expect_in_sync(momentum);
  EXPECT_EQ(momentum[0].bytes_sent, without[0].bytes_sent);
  EXPECT_LT(momentum[0].losses.back(), without[0].losses.back() - 0.5);
}

class ParameterCompression : public testing::TestWithParam<Options> {};

TEST_P(ParameterCompression, LearnsKeepsReplicasEqualAndSendsLess) {
  for (const int world : {2, 3, 4}) {
    const Options options = with(kBatchesOf13, "epochs=6 dtype=f32 sync-every=3", GetParam());
    const auto plain = train(world, with(options, "compress= sparse-ratio=")),
               less = train(world, options);
    expect_in_sync(less);
    EXPECT_EQ(less[0].averagings, plain[0].averagings);
    EXPECT_LT(less[0].bytes_sent, plain[0].bytes_sent * 0.7);
    EXPECT_NEAR(less[0].losses.back(), plain[0].losses.back(), 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ParameterCompression,
    testing::Values(Options("sync=params compress=int8"), Options("sync=params compress=int4"),
                    Options("sync=params compress=int8 average-state=all average-buffers=true"),
                    Options("sync=params compress=sparse sparse-ratio=0.2"),
                    Options("sync=post-local sync-warmup=4 compress=int4"),
                    Options("sync=slowmo compress=int4"), Options("sync=diloco compress=int8"),
                    Options("sync=streaming compress=int4 sync-mixing=1"),
                    Options("sync=diloco compress=sparse sparse-ratio=0.2 outer-momentum=0 "
                            "outer-lr=1")));

TEST(ParameterCompression, RanksWithoutSamplesAndIslandsStayEqual) {
  for (const Options& more :
       {Options("compress=int8"), Options("compress=int4"), Options("compress=sparse")}) {
    const Options options = with("batch-size=3 synthetic-size=20 sync=diloco sync-every=2", more);
    expect_in_sync(train(4, options));
    expect_in_sync(train_on_hosts({"a", "b", "b", "b"}, with(options, "sync-island=host")));
  }
}

TEST(Compression, OverlappedAndDelayedInt8GiveTheSameBits) {
  const Options options = "compress=int8 bucket-cap-mb=0.01";
  EXPECT_TRUE(same_bits(train(3, options)[0], train(3, with(options, "delay-allreduce=true"))[0],
                        io::Section::kParameter));
}

TEST(Compression, OverlappedAndDelayedBf16GiveTheSameBits) {
  const Options options = "compress=bf16 bucket-cap-mb=0.1";
  EXPECT_TRUE(same_bits(train(3, options)[0], train(3, with(options, "delay-allreduce=true"))[0],
                        io::Section::kParameter));
}

// --- what is sent, how far replicas part, what was planned

TEST(Bytes, AreThePayloadOfEveryAveraging) {
  const auto grad = train(2, "epochs=1")[0];
  const auto params = train(2, "epochs=1 sync=params sync-every=5")[0];
  EXPECT_EQ(grad.bytes_sent, 5 * params.bytes_sent);
  EXPECT_EQ(train(2, "epochs=1 compress=bf16")[0].bytes_sent, grad.bytes_sent / 2);
  for (const int world : {2, 4}) {
    const auto times = [&](const std::string& options, const std::string& coded) {
      return static_cast<double>(train(world, options)[0].bytes_sent) /
             static_cast<double>(train(world, options + coded)[0].bytes_sent);
    };
    for (const std::string policy : {"epochs=1", "epochs=1 sync=diloco sync-every=5"}) {
      EXPECT_GE(times(policy, " compress=int8"), 3.9);
      EXPECT_GE(times(policy, " compress=int4"), 7.5);
    }
  }
  EXPECT_EQ(train(2, "epochs=1 sync=none")[0].bytes_sent, 0);
}

TEST(Spread, IsReportedWhereReplicasPart) {
  EXPECT_TRUE(train(2, "epochs=1")[0].spreads.empty());
  const auto ranks = train(3, "epochs=2 sync=params sync-every=5");
  ASSERT_EQ(ranks[0].spreads.size(), 2u);
  EXPECT_EQ(ranks[0].spreads, ranks[2].spreads);
  EXPECT_GT(ranks[0].spreads[0], 1e-6);
  EXPECT_LT(ranks[0].spreads[0], 1);
}

TEST(Spread, MeasuringChangesNoBit) {
  const Options options = "epochs=2 sync=diloco sync-every=2";
  EXPECT_TRUE(same_bits(train(2, options)[0], train(2, with(options, "log-every=0"))[0],
                        io::Section::kParameter));
}

TEST(Plan, TellsOfPeriodsThatNeverEnd) {
  const auto plan = train(2, "epochs=2 sync=diloco sync-every=500")[0].plan;
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_CONTAINS(plan[0], "0 averagings by the clock, 2 more at ends");
  EXPECT_VALUES(plan[1], "= 500 10 steps 5");
  EXPECT_VALUES(plan[2], "no outer step");
  EXPECT_TRUE(train(2, "epochs=1")[0].plan.empty());
}

// --- stopping, saving, going on

const Options kShort = "model=convnet synthetic-shape=8x8x1";

class Continuation : public testing::TestWithParam<Options> {};

// A period of 4 and checkpoints every 3 steps: a checkpoint averages in the middle of a period, and
// the clock goes on regardless.
TEST_P(Continuation, AStopInTheMiddleOfAPeriodChangesNoBit) {
  const test_support::TemporaryDirectory whole, parts;
  const Options options = with(kShort, "save-every=3s", GetParam());
  const auto uninterrupted = train(2, with(options, "steps=12 save-dir=" + whole.path().string()));
  std::vector<RankResult> last;
  for (const char* steps : {"3", "6", "9", "12"})
    last = train(2, with(options, std::string("steps=") + steps +
                                      " save-dir=" + parts.path().string() + " resume=auto"));
  for (std::size_t r = 0; r < last.size(); ++r) {
    EXPECT_TRUE(same_bits(uninterrupted[r], last[r], io::Section::kParameter)) << "rank " << r;
    EXPECT_TRUE(same_bits(uninterrupted[r], last[r], io::Section::kBuffer)) << "rank " << r;
  }
  EXPECT_EQ(last[0].losses.back(), uninterrupted[0].losses.back());
  EXPECT_EQ(last[0].averagings, uninterrupted[0].averagings);
  EXPECT_EQ(last[0].coverage, uninterrupted[0].coverage);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, Continuation,
    testing::Values(Options("sync=params sync-every=4 average-state=all average-buffers=true"),
                    Options("sync=params sync-schedule=0:2,4:4"),
                    Options("sync=diloco sync-every=4"),
                    Options("sync=streaming sync-every=4 sync-fragments=2 sync-overlap=2"),
                    Options("sync=streaming sync-every=4 sync-overlap=3 sync-mixing=1 "
                            "outer-lr=0.7 outer-momentum=0.9"),
                    Options("sync=streaming sync-every=2 sync-warmup=4"),
                    Options("sync=diloco sync-every=4 outer-lr=0.7 outer-momentum=0.9"),
                    Options("sync=diloco sync-every=4 optimizer=muon lr=0.01 "
                            "average-state=momentum:2,second:1"),
                    Options("sync=params sync-every=2 optimizer=adamw lr=0.001 "
                            "average-state=momentum:4,second:2"),
                    Options("sync=slowmo sync-every=4 optimizer=adamw lr=0.001"),
                    Options("sync=post-local sync-every=4 sync-warmup=5"),
                    Options("sync=diloco sync-every=4 sync-island=host sync-warmup=2"),
                    Options("compress=bf16"), Options("compress=topk"),
                    Options("compress=powersgd powersgd-rank=2"), Options("compress=int8"),
                    Options("compress=int4"),
                    Options("compress=sparse sparse-warmup=7 momentum=0 sparse-momentum=0.9"),
                    Options("compress=int8 sync=params sync-every=4 average-state=all"),
                    Options("compress=int4 sync=diloco sync-every=4"),
                    Options("compress=sparse sync=diloco sync-every=4 sparse-bits=4"),
                    Options("compress=int8 sync=slowmo sync-every=4"),
                    Options("compress=sparse sync=post-local sync-every=4 sync-warmup=5"),
                    Options("compress=int4 sync=diloco sync-every=4 sync-island=host "
                            "sync-warmup=2"),
                    Options("compress=int8 sync=streaming sync-every=4 sync-fragments=2 "
                            "sync-overlap=2"),
                    Options("compress=int4 sync=streaming sync-every=4 sync-overlap=3 "
                            "sync-mixing=1"),
                    Options("compress=sparse sync=streaming sync-every=4 sync-fragments=2")));

// With four ranks, quantized sums are made in shares.
TEST_P(Continuation, OfFourRanks) {
  const Options& options_of_policy = GetParam();
  if (!options_of_policy.contains("compress")) GTEST_SKIP() << "needs a compressed sum";
  const test_support::TemporaryDirectory whole, parts;
  const Options options = with(kShort, "save-every=3s", options_of_policy);
  const auto uninterrupted = train(4, with(options, "steps=6 save-dir=" + whole.path().string()));
  std::vector<RankResult> last;
  for (const char* steps : {"3", "6"})
    last = train(4, with(options, std::string("steps=") + steps +
                                      " save-dir=" + parts.path().string() + " resume=auto"));
  for (std::size_t r = 0; r < last.size(); ++r)
    EXPECT_TRUE(same_bits(uninterrupted[r], last[r], io::Section::kParameter)) << "rank " << r;
}

// Checkpoints at the end of periods average nothing that the clock would not.
TEST(Continuation, CheckpointsAtTheEndOfPeriodsChangeNothing) {
  const test_support::TemporaryDirectory folder;
  const Options options = with(kShort, "sync=diloco sync-every=2 steps=8");
  const auto without = train(2, options);
  const auto saving = train(2, with(options, "save-every=4s save-dir=" + folder.path().string()));
  EXPECT_TRUE(same_bits(without[0], saving[0], io::Section::kParameter));
}

// In the middle of one they do, but take no outer step.
TEST(Continuation, ACheckpointTakesNoOuterStep) {
  const test_support::TemporaryDirectory folder;
  const auto ranks =
      train(2, with(kShort, "sync=diloco sync-every=5 steps=10 save-every=3s save-dir=" +
                                folder.path().string()));
  EXPECT_VALUES(ranks[0].coverage, "5 times 10 steps 2 outer");
}

TEST(Continuation, AnotherPolicyGoesOnFromACheckpoint) {
  const test_support::TemporaryDirectory folder;
  const Options dir = "save-dir=" + folder.path().string() + " save-every=5s";
  train(2, with(kShort, dir, "steps=5"));
  const Options resumed = with(kShort, dir, "resume=auto");
  const auto diloco = train(2, with(resumed, "steps=10 sync=diloco sync-every=2"));
  EXPECT_VALUES(diloco[0].coverage, "10 steps 3 outer");
  expect_in_sync(diloco);
  const auto slowmo = train(2, with(resumed, "steps=15 sync=slowmo sync-every=5"));
  expect_in_sync(slowmo);
  expect_in_sync(train(2, with(resumed, "steps=20 compress=topk")));
}

// Each start has five steps, and what it sends is that of a run which starts with the policy.
TEST(Continuation, CountsTheAveragingsOfAllStarts) {
  struct Start {
    const char* policy;
    int ranks;
  };
  const std::vector<std::array<Start, 3>> runs{
      {{{"sync=post-local sync-every=2 sync-warmup=4", 2}, {"sync=params", 2}, {"sync=grad", 2}}},
      {{{"sync=grad", 2}, {"sync=post-local sync-every=5 sync-warmup=10", 2}, {"sync=grad", 2}}},
      {{{"sync=params", 2}, {"sync=post-local sync-every=5 sync-warmup=20", 2}, {"sync=grad", 2}}},
      {{{"sync=diloco sync-every=5", 2}, {"sync=none", 2}, {"sync=diloco sync-every=5", 2}}},
      {{{"sync=diloco sync-every=5", 2}, {"sync=grad", 2}, {"sync=diloco sync-every=5", 2}}},
      {{{"sync=diloco sync-every=5", 2}, {"sync=diloco sync-every=5", 1}, {"sync=grad", 2}}},
      {{{"sync=params sync-every=5", 2}, {"sync=params", 1}, {"sync=params sync-every=5", 2}}},
      {{{"sync=grad", 2}, {"sync=grad", 1}, {"sync=grad", 2}}}};
  for (const auto& starts : runs) {
    const test_support::TemporaryDirectory folder;
    const Options dir = "save-every=5s save-dir=" + folder.path().string();
    std::int64_t averagings = 0, bytes = 0, steps = 0;
    for (const Start& start : starts) {
      SCOPED_TRACE(std::string(start.policy) + " " + std::to_string(start.ranks));
      steps += 5;
      const auto run = train(start.ranks, with(kShort, dir, start.policy,
                                               "resume=auto steps=" + std::to_string(steps)));
      EXPECT_GE(run[0].averagings, averagings);
      EXPECT_GE(run[0].bytes_sent, bytes);
      const bool sends = start.ranks > 1 && std::string(start.policy) != "sync=none";
      EXPECT_EQ(run[0].bytes_sent > bytes, sends);
      if (sends) EXPECT_GT(run[0].averagings, averagings);
      averagings = run[0].averagings;
      bytes = run[0].bytes_sent;
    }
  }
}

TEST(Continuation, ErrorMemoryOfAnotherWorldIsDropped) {
  for (const char* policy :
       {"compress=topk", "compress=int8", "compress=sparse",
        "compress=sparse sync=diloco sync-every=2", "compress=int4 sync=params sync-every=2",
        "compress=int4 sync=streaming sync-every=2"}) {
    const test_support::TemporaryDirectory folder;
    const Options options = with(kShort, "save-dir=" + folder.path().string(), policy);
    train(2, with(options, "steps=5"));
    expect_in_sync(train(4, with(options, "steps=10 resume=auto")));
  }
}

std::pair<long long, long long> bytes_planned(const Options& options) {
  std::pair<long long, long long> found{-1, -1};  // sent, received
  const std::vector<RankResult> ranks = train(4, with(kShort, options));
  for (const std::string& line : ranks[0].plan) {
    if (const std::size_t at = line.find(" sent as ");
        at != std::string::npos)  // "..., N of M bytes"
      found.first = std::stoll(line.substr(line.rfind(", ", line.find(" of ", at)) + 2));
    if (const std::size_t at = line.find(" receives "); at != std::string::npos)
      found.second = std::stoll(line.substr(at + 10));
  }
  return found;
}

// Blocks of codes end with the fragment, whose bytes are therefore more than those of all.
TEST(Plan, CountsTheBytesOfFragments) {
  const Options sparse = "dtype=f32 steps=4 compress=sparse sparse-ratio=1 sparse-bits=8";
  const auto whole = bytes_planned(with(sparse, "sync=diloco sync-every=4"));
  const auto parts =
      bytes_planned(with(sparse, "sync=streaming sync-every=4 sync-overlap=2 sync-fragments=3"));
  EXPECT_EQ(whole.second, 3 * whole.first);
  EXPECT_EQ(parts.second, 3 * parts.first);
  EXPECT_GT(parts.first, whole.first);
}

// Averagings of all ranks include the anchor and the momentum of outer steps.
TEST(Plan, CountsTheBytesOfPairs) {
  for (const char* outer : {"", "outer-lr=0.5", "outer-momentum=0.5"}) {
    const RankResult rank = train(
        2, with("batch-size=10 synthetic-size=103 steps=24 sync=gossip sync-every=4", outer))[0];
    long long by_clock = 0, at_ends = 0, each = 0, of_all = 0;
    const std::string& line = rank.plan.at(0);
    ASSERT_EQ(std::sscanf(line.c_str() + line.find(": ") + 2,
                          "%lld averagings%*[^,], %lld more%*[^,], %lld bytes", &by_clock, &at_ends,
                          &each),
              3)
        << line;
    const std::size_t second = line.find(" in pairs, ");
    of_all = second == std::string::npos ? each : std::stoll(line.substr(second + 11));
    EXPECT_EQ(rank.bytes_sent, by_clock * each + at_ends * of_all) << line;
  }
}

// Rank 0 copies the state of a device to host memory, in case a rank is lost. Exchanges may be in
// flight or about to come then.
TEST(CopiesForALoss, ChangeNoExchange) {
  for (const char* options :
       {"sync=params sync-every=2", "sync=diloco sync-every=2 stale=1 stale-patience=1000000",
        "sync=gossip sync-every=2", "sync=streaming sync-every=2 sync-overlap=1",
        "sync=streaming sync-every=2 sync-overlap=1 sync-mixing=1", "sync=none", "compress=int8"}) {
    SCOPED_TRACE(options);
    const test_support::TemporaryDirectory folder;
    const Options plain_options = with(kShort, "log-every=0 steps=14", options),
                  all = with(plain_options, "save-dir=" + folder.path().string());
    std::array<engine::StepControl, 2> control;  // as the state of a device has
    const auto copied = train(2, all, [&](int rank, TrainState& state) {
      state.control = &control[static_cast<std::size_t>(rank)];
    });
    const auto plain = train(2, plain_options);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(copied[rank].end.global_step, 14);
      EXPECT_TRUE(same_bits(copied[rank], plain[rank], io::Section::kParameter));
    }
  }
}

// A run without a use for the averaging's memory in a checkpoint drops it, with a notice.
TEST(Continuation, DroppedMemoryOfTheAveragingIsReported) {
  struct Case {
    const char *before, *after;
    int ranks_after;
    const char* notice;  // its values; "": none
  };
  const Case cases[] = {
      {"compress=int8", "compress=int8", 2, ""},
      {"compress=int8", "compress=int8", 1, "gradient_error PATH dropped: one rank"},
      {"compress=int8", "compress=int8", 3, "gradient_error per-rank reset"},
      {"compress=int8", "", 2, "gradient_error PATH dropped: this run's averaging"},
      {"compress=int8 sync=params sync-every=2", "compress=int8 sync=params sync-every=2", 1,
       "parameter_error PATH dropped: one rank"},
      {"sync=diloco sync-every=2", "sync=params sync-every=2", 2,
       "outer_momentum PATH dropped: this run's averaging"},
      {"sync=streaming sync-every=4 sync-overlap=3 sync-fragments=2",
       "sync=streaming sync-every=4 sync-overlap=3 sync-fragments=2", 2, ""},
      {"sync=streaming sync-every=4 sync-overlap=3 sync-fragments=2",
       "sync=streaming sync-every=4 sync-overlap=3 sync-fragments=1", 2,
       "1 fragment PATH dropped: 2 fragments, 1"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.before) + " -> " + c.after);
    const test_support::TemporaryDirectory folder;
    const Options options = with(kShort, "save-dir=" + folder.path().string());
    train(2, with(options, "steps=5", c.before));
    testing::internal::CaptureStderr();
    train(c.ranks_after, with(options, "steps=6 resume=auto", c.after));
    const std::string reported = testing::internal::GetCapturedStderr();
    if (*c.notice == '\0') {
      EXPECT_EQ(reported.find("the averaging's"), std::string::npos) << reported;
      continue;
    }
    std::string notice = c.notice;
    if (const std::size_t at = notice.find("PATH"); at != std::string::npos)
      notice.replace(at, 4, folder.path().string() + "/step-00000005.ckpt");
    EXPECT_VALUES(reported, "averaging's " + notice);
  }
}

}  // namespace
