// The loop through its public interface: in what order it does what is due, when ranks stop
// together, and what is left of a run that fails, diverges or is resumed.
#include "engine/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>

#include "backends/backend_error.h"
#include "engine/core/error.h"
#include "tests/engine/train/trainer_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using engine::TrainResult;
using trainer_fixture::Averaging;
using trainer_fixture::on_ranks;
using trainer_fixture::Options;
using trainer_fixture::Rank;
using Events = std::vector<std::string>;

constexpr std::int64_t kWithoutEnd = std::int64_t{1} << 40;

// What the ranks of a run leave, in rank order.
template <class T>
class PerRank {
 public:
  explicit PerRank(int world) : values_(static_cast<std::size_t>(world)) {}
  T& operator[](int rank) { return values_[static_cast<std::size_t>(rank)]; }

 private:
  std::deque<T> values_;  // elements of their own, of bool too
};

Events events_of_one(const Options& options) {
  Events events;
  on_ranks(1, options, [&](Rank& rank) {
    rank.run();
    events = rank.events;
  });
  return events;
}

std::string checkpoint(const test_support::TemporaryDirectory& folder, std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%08lld.ckpt", static_cast<long long>(step));
  return folder / name;
}

TEST(Trainer, EvaluatesBeforeItSavesAfterTheObserversOfAStep) {
  const test_support::TemporaryDirectory folder;
  EXPECT_EQ(events_of_one({.steps = 5,
                           .evaluate = {.count = 2},
                           .save = {.count = 1, .epochs = true},
                           .log_every = 3,
                           .folder = folder.path().string()}),
            (Events{"step 1", "step 2", "evaluated 2", "report 3", "step 3", "step 4",
                    "evaluated 4", "saved 4", "step 5", "evaluated 5", "saved 5", "end"}));
}

TEST(Trainer, EvaluatesAndSavesTheLastStateOnce) {
  const test_support::TemporaryDirectory folder;
  EXPECT_EQ(events_of_one({.steps = 2,
                           .evaluate = {.count = 2},
                           .save = {.count = 2},
                           .folder = folder.path().string()}),
            (Events{"step 1", "step 2", "evaluated 2", "saved 2", "end"}));
  EXPECT_EQ(events_of_one({.steps = 2}), (Events{"step 1", "step 2", "evaluated 2", "end"}));
  EXPECT_EQ(events_of_one({.steps = 1, .evaluates = false}), (Events{"step 1", "end"}));
}

TEST(Trainer, ARunTooShortForAReportGetsOne) {
  EXPECT_EQ(events_of_one({.steps = 2, .log_every = 100, .evaluates = false}),
            (Events{"step 1", "report 2", "step 2", "end"}));
  EXPECT_EQ(events_of_one({.steps = 2, .log_every = {}, .evaluates = false}),
            (Events{"report 1", "step 1", "report 2", "step 2", "end"}));
}

TEST(Trainer, TheBestStateIsSavedAndPatienceEndsAllRanksAfterTheSameStep) {
  const test_support::TemporaryDirectory folder;
  constexpr int kRanks = 2;
  PerRank<TrainResult> results(kRanks);
  PerRank<Events> events(kRanks);
  // No improvement is large enough: the first evaluation stays the best.
  on_ranks(kRanks,
           {.steps = 40,
            .evaluate = {.count = 1},
            .folder = folder.path().string(),
            .best =
                engine::BestModelOptions{
                    .measure = engine::Measure::kLoss, .patience = 2, .min_delta = 1000}},
           [&](Rank& rank) {
             results[rank.number()] = rank.run();
             events[rank.number()] = rank.events;
           });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(results[r].progress.global_step, 3);
    EXPECT_EQ(results[r].stopped_early, "no improvement of loss by at least 1000 in 2 evaluations");
    EXPECT_EQ(results[r].signal, 0);
  }
  EXPECT_EQ(events[0].at(2), "saved 1") << "the best so far";
  EXPECT_EQ(events[1].at(1), "evaluated 1");
  EXPECT_EQ(events[1].at(2), "step 2") << "only rank 0 writes";
}

TEST(Trainer, OneRanksSignalStopsAllAfterTheSameStepAndSavesItWithoutAnEvaluation) {
  const test_support::TemporaryDirectory folder;
  constexpr int kRanks = 3;
  PerRank<TrainResult> results(kRanks);
  PerRank<Events> events(kRanks);
  on_ranks(kRanks, {.steps = kWithoutEnd, .folder = folder.path().string()}, [&](Rank& rank) {
    rank.after_step = [&](std::int64_t step) {
      if (step == 2 && rank.number() == 1) rank.stop_signal = SIGTERM;
    };
    results[rank.number()] = rank.run();
    events[rank.number()] = rank.events;
  });
  const std::int64_t end = results[0].progress.global_step;
  EXPECT_GT(end, 2);
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(results[r].progress.global_step, end);
    EXPECT_EQ(results[r].signal, SIGTERM);
    EXPECT_EQ(results[r].interrupted, "");
    EXPECT_FALSE(results[r].paused);
    EXPECT_EQ(std::count(events[r].begin(), events[r].end(), "evaluated " + std::to_string(end)),
              0);
  }
  EXPECT_TRUE(std::filesystem::exists(checkpoint(folder, end)));
}

TEST(Trainer, ARequestToPauseOnOneRankPausesAllWithoutASave) {
  const test_support::TemporaryDirectory folder;
  constexpr int kRanks = 2;
  PerRank<TrainResult> results(kRanks);
  on_ranks(kRanks, {.steps = kWithoutEnd, .folder = folder.path().string()}, [&](Rank& rank) {
    rank.pause = [&rank] { return rank.number() == 1; };
    results[rank.number()] = rank.run();
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_TRUE(results[r].paused);
    EXPECT_FALSE(results[r].leaves);
    EXPECT_EQ(results[r].signal, 0);
    EXPECT_EQ(results[r].progress.global_step, results[0].progress.global_step);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Trainer, ARankMayLeaveWhereEnoughOthersStay) {
  constexpr int kRanks = 3;
  for (const int least : {2, 3}) {
    PerRank<TrainResult> results(kRanks);
    on_ranks(kRanks, {.steps = kWithoutEnd, .min_ranks = least, .leave_signal = SIGUSR1},
             [&](Rank& rank) {
               rank.leave = [&rank] { return rank.number() == 2; };
               results[rank.number()] = rank.run();
             });
    const bool may = least == 2;
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(results[r].paused, may);
      EXPECT_EQ(results[r].leaves, may && r == 2);
      EXPECT_EQ(results[r].signal, may ? 0 : SIGUSR1);
      EXPECT_GT(results[r].progress.global_step, 1) << "not in the first exchange";
    }
  }
}

// Runs two ranks until `fail`, before a collective of the gradients' communicator, throws on both.
// Returns each rank's state after every step and, under the key -1, at the end.
using States = std::map<std::int64_t, std::string>;
template <class Error>
PerRank<States> fail_at(std::int64_t step, Options options, PerRank<std::int64_t>& ends,
                        PerRank<bool>& whole) {
  PerRank<States> states(2);
  options.steps = kWithoutEnd;
  on_ranks(2, options, [&](Rank& rank) {
    States& mine = states[rank.number()];
    rank.gradients->before = [&rank, step](const backends::Call&) {
      if (rank.step() == step) throw Error("the other rank is gone");
    };
    rank.after_step = [&](std::int64_t done) { mine[done] = rank.state_bytes(); };
    EXPECT_THROW(rank.run(), Error);
    mine[-1] = rank.state_bytes();
    ends[rank.number()] = rank.step();
    whole[rank.number()] = rank.state.whole;
  });
  return states;
}

TEST(Trainer, AStepThatFailsBeforeItsUpdateIsRolledBack) {
  PerRank<std::int64_t> ends(2);
  PerRank<bool> whole(2);
  PerRank<States> states =
      fail_at<backends::PeerError>(5, {.evaluates = false, .supports_rollback = true}, ends, whole);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(ends[r], 5);
    EXPECT_TRUE(whole[r]);
    EXPECT_EQ(states[r][-1], states[r][5]) << "running statistics and counters, too";
  }
}

TEST(Trainer, WithoutRollbackForwardHasChangedTheStatistics) {
  PerRank<std::int64_t> ends(2);
  PerRank<bool> whole(2);
  PerRank<States> states = fail_at<backends::PeerError>(5, {.evaluates = false}, ends, whole);
  EXPECT_EQ(ends[1], 5);
  EXPECT_NE(states[1][-1], states[1][5]);
}

TEST(Trainer, AStepThatFailsAfterItsUpdateCounts) {
  PerRank<std::int64_t> ends(2);
  PerRank<bool> whole(2);
  PerRank<States> states = fail_at<backends::PeerError>(
      3, {.evaluates = false, .averaging = Averaging::kParameters, .supports_rollback = true}, ends,
      whole);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(ends[r], 4) << "and the end of the epoch with it";
    EXPECT_TRUE(whole[r]);
    EXPECT_NE(states[r][-1], states[r][3]);
  }
}

TEST(Trainer, AnInterruptedRankZeroSavesTheLastWholeStepAlone) {
  const test_support::TemporaryDirectory folder;
  PerRank<TrainResult> results(2);
  std::string after_two;
  on_ranks(2, {.steps = kWithoutEnd, .folder = folder.path().string(), .evaluates = false},
           [&](Rank& rank) {
             rank.gradients->before = [&rank](const backends::Call&) {
               if (rank.step() != 2) return;
               rank.stop_signal = SIGINT;
               throw backends::InterruptedError("waits no longer");
             };
             rank.after_step = [&](std::int64_t step) {
               if (step == 2 && rank.number() == 0) after_two = rank.state_bytes();
             };
             results[rank.number()] = rank.run();
             if (rank.number() == 0) {
               EXPECT_EQ(rank.state_bytes(), after_two);
               EXPECT_EQ(rank.events, (Events{"step 1", "step 2", "saved 2", "end"}));
             } else {
               EXPECT_EQ(rank.events, (Events{"step 1", "step 2", "end"}));
             }
           });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(results[r].signal, SIGINT);
    EXPECT_EQ(results[r].interrupted, "waits no longer");
  }
  EXPECT_TRUE(std::filesystem::exists(checkpoint(folder, 2)));
}

TEST(Trainer, AnInterruptedRankZeroStatesWhatTheOthersHad) {
  struct Case {
    Averaging averaging;
    const char* lacks;
  };
  for (const auto& [averaging, lacks] :
       {Case{Averaging::kCodedGradients, "what --compress had not sent yet on the other ranks"},
        Case{Averaging::kNone, "the other ranks' own models are not in it"}}) {
    const test_support::TemporaryDirectory folder;
    PerRank<TrainResult> results(2);
    on_ranks(2,
             {.steps = kWithoutEnd,
              .folder = folder.path().string(),
              .evaluates = false,
              .averaging = averaging},
             [&](Rank& rank) {
               rank.after_step = [&rank](std::int64_t step) {
                 if (step != 2) return;
                 rank.stop_signal = SIGINT;
                 throw backends::InterruptedError("waits no longer");
               };
               results[rank.number()] = rank.run();
             });
    EXPECT_CONTAINS(results[0].interrupted, std::string("waits no longer; ") + lacks);
    EXPECT_EQ(results[1].interrupted, "waits no longer");
    EXPECT_TRUE(std::filesystem::exists(checkpoint(folder, 2)));
  }
}

TEST(Trainer, ARunResumedInTheMiddleOfAnEpochEndsWithTheSameBits) {
  for (const int world : {1, 2}) {
    const test_support::TemporaryDirectory folder;
    const std::int64_t middle = trainer_fixture::kStepsPerEpoch + 2, end = middle + 5;
    PerRank<std::string> straight(world), resumed(world);
    on_ranks(world, {.steps = end, .evaluates = false}, [&](Rank& rank) {
      rank.run();
      straight[rank.number()] = rank.state_bytes();
    });
    on_ranks(world, {.steps = middle, .folder = folder.path().string(), .evaluates = false},
             [&](Rank& rank) { rank.run(); });
    on_ranks(world, {.steps = end, .folder = folder.path().string(), .evaluates = false},
             [&](Rank& rank) {
               const TrainResult result = rank.resume();
               EXPECT_EQ(result.progress.global_step, end);
               EXPECT_EQ(rank.events.front(), "step " + std::to_string(middle + 1));
               resumed[rank.number()] = rank.state_bytes();
             });
    for (int r = 0; r < world; ++r) EXPECT_EQ(resumed[r], straight[r]) << world;
  }
}

TEST(Trainer, WhatWasDueAfterTheLastStepIsMadeUp) {
  const test_support::TemporaryDirectory folder;
  const auto events = [&](const engine::TrainerParts::Done& done) {
    Events found;
    on_ranks(1,
             {.steps = 2,
              .evaluate = {.count = 1},
              .save = {.count = 1},
              .folder = folder.path().string()},
             [&](Rank& rank) {
               rank.state.progress = {.global_step = 1, .step_in_epoch = 1};
               rank.done = done;
               rank.run();
               found = rank.events;
             });
    return found;
  };
  const Events rest{"step 2", "evaluated 2", "saved 2", "end"};
  const auto behind = [&](Events before) {
    before.insert(before.end(), rest.begin(), rest.end());
    return before;
  };
  EXPECT_EQ(events({.evaluated = 1, .saved = 1}), rest);
  EXPECT_EQ(events({.evaluated = 1, .saved = -1}), behind({"saved 1"}));
  EXPECT_EQ(events({.evaluated = -1, .saved = 1}), behind({"evaluated 1"}));
  EXPECT_EQ(events({.evaluated = -1, .saved = -1}), behind({"evaluated 1", "saved 1"}));
}

TEST(Trainer, AMadeUpEvaluationThatIsTheBestIsSaved) {
  const test_support::TemporaryDirectory folder;
  on_ranks(1,
           {.steps = 2,
            .evaluate = {.count = 1},
            .folder = folder.path().string(),
            .best = engine::BestModelOptions{.measure = engine::Measure::kLoss, .min_delta = 0}},
           [&](Rank& rank) {
             rank.state.progress = {.global_step = 1, .step_in_epoch = 1};
             rank.done = {.evaluated = -1, .saved = 1};
             rank.run();
             ASSERT_GE(rank.events.size(), 3u);
             EXPECT_EQ(Events(rank.events.begin(), rank.events.begin() + 3),
                       (Events{"evaluated 1", "saved 1", "step 2"}));
           });
}

TEST(Trainer, ADivergedRunEndsOnAllRanksAndNamesTheLastGoodCheckpoint) {
  const test_support::TemporaryDirectory folder;
  PerRank<std::string> errors(2);
  on_ranks(2, {.steps = kWithoutEnd, .save = {.count = 2}, .folder = folder.path().string()},
           [&](Rank& rank) {
             rank.after_step = [&](std::int64_t step) {
               if (step == 4 && rank.number() == 1)
                 rank.parts.model.parameters.values.span<float>()[0] =
                     std::numeric_limits<float>::quiet_NaN();
             };
             errors[rank.number()] =
                 test_support::error_of<engine::NonFiniteError>([&] { rank.run(); });
             EXPECT_EQ(rank.events.back().substr(0, 11), "not finite:");
           });
  EXPECT_CONTAINS(errors[0], checkpoint(folder, 2));
  EXPECT_EQ(errors[1], errors[0]);
}

}  // namespace
