// Averages over epochs, evaluations and the best checkpoint after the loss of a rank at the end of
// an epoch.
#include "engine/train/weight_average.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend_error.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/engine/train/trainer_fixture.h"
#include "tests/support/test_support.h"

namespace {

using backends::PeerError;
using test_support::TemporaryDirectory;
using trainer_fixture::kStepsPerEpoch;
using trainer_fixture::on_ranks;
using trainer_fixture::Options;
using trainer_fixture::Rank;

Options two_epochs(const TemporaryDirectory& folder) {
  return {.steps = 2 * kStepsPerEpoch, .folder = folder.path().string(), .average_last = 2};
}

// The newest checkpoint's arrays of all sections.
std::vector<io::NamedArray> newest(const TemporaryDirectory& folder) {
  return io::load_checkpoint(io::find_newest_checkpoint(folder.path().string(), nullptr)).arrays;
}

void expect_equal(const std::vector<io::NamedArray>& found,
                  const std::vector<io::NamedArray>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name);
    EXPECT_EQ(found[i].data, expected[i].data) << found[i].name;
  }
}

// All ranks find that another one is gone in the first exchange between steps of which `when` is
// true.
void fail_once(Rank& rank, const std::function<bool()>& when) {
  rank.control->before = [when, failed = false](const backends::Call&) mutable {
    if (failed || !when()) return;
    failed = true;
    throw PeerError("a rank is gone");
  };
}
bool has(const Rank& rank, const std::string& event) {
  return std::ranges::find(rank.events, event) != rank.events.end();
}

TEST(AverageAfterALoss, IsCompletedFromTheSameState) {
  const TemporaryDirectory whole, lost;
  on_ranks(2, two_epochs(whole), [](Rank& rank) { rank.run(); });
  Options options = two_epochs(lost);
  options.supports_rollback = true;
  on_ranks(2, options, [](Rank& rank) {
    rank.recompute = [&rank] {
      for (float& value : rank.parts.model.running.span<float>()) value += 1;
      throw PeerError("a rank is gone");
    };
    EXPECT_THROW(rank.run(), PeerError);
    EXPECT_TRUE(rank.state.whole);
    rank.recompute = {};
    rank.done = {.evaluated = -1, .saved = rank.step()};
    rank.run();
  });
  expect_equal(newest(lost), newest(whole));
}

// A checkpoint of the end of an epoch that its average lacks, as of ranks that were lost in
// between.
TEST(AverageAfterALoss, HasTheEpochThatEndedThen) {
  for (const std::int64_t epochs : {1, 2}) {  // at the end of the first one, or of the run
    const TemporaryDirectory whole, lost;
    Options with = two_epochs(whole);
    with.average_last = 3 - epochs;
    on_ranks(2, with, [](Rank& rank) { rank.run(); });
    Options without = two_epochs(lost);
    without.average_last = 0;
    without.steps = epochs * kStepsPerEpoch;
    on_ranks(2, without, [](Rank& rank) { rank.run(); });
    with.folder = lost.path().string();
    on_ranks(2, with, [](Rank& rank) { rank.resume(); });
    expect_equal(newest(lost), newest(whole));
  }
}

TEST(EpochAverage, IsBehindByTheEpochAfterItsLastOne) {
  on_ranks(1, {}, [](Rank& rank) {
    const engine::EpochAverageOptions options{.epochs = 3,
                                              .run = {.epochs = 3, .steps_per_epoch = 10}};
    engine::EpochAverage average(rank.parts.model, rank.context, options);
    average.end_epoch(rank.state.home, {.global_step = 10, .epoch = 1});
    const auto restored_at = [&](const io::Checkpoint& at) {
      engine::StateCopy copy;
      copy.begin(at);
      average.capture(copy);
      auto other = std::make_unique<engine::EpochAverage>(rank.parts.model, rank.context, options);
      other->restore(copy.take(), "a.ckpt", {});
      return other;
    };
    EXPECT_FALSE(restored_at({.global_step = 10, .epoch = 1})->is_behind());
    EXPECT_FALSE(restored_at({.global_step = 15, .epoch = 1, .step_in_epoch = 5})->is_behind());
    EXPECT_FALSE(restored_at({.global_step = 25, .epoch = 2, .step_in_epoch = 5})->is_behind());
    EXPECT_FALSE(restored_at({.global_step = 30, .epoch = 3})->is_behind());
    const auto behind = restored_at({.global_step = 20, .epoch = 2});
    ASSERT_TRUE(behind->is_behind());
    behind->end_epoch(rank.state.home, {.global_step = 20, .epoch = 2});
    EXPECT_FALSE(behind->is_behind());
    engine::StateCopy end;
    end.begin({});
    behind->capture(end);
    EXPECT_EQ(end.checkpoint().counters.front().second, 2) << "epochs";
  });
}

// A position within an epoch counts steps of the batch size that it was made with: 300 of 600 are
// no end of an epoch of 300.
TEST(EpochAverage, SurvivesAChangeOfTheBatchWithinAnEpoch) {
  on_ranks(1, {}, [](Rank& rank) {
    const auto average_with = [&](std::int64_t steps_per_epoch) {
      return engine::EpochAverage(
          rank.parts.model, rank.context,
          {.epochs = 2, .run = {.epochs = 3, .steps_per_epoch = steps_per_epoch}});
    };
    engine::EpochAverage before = average_with(600), after = average_with(300);
    before.end_epoch(rank.state.home, {.global_step = 1200, .epoch = 2});
    engine::StateCopy copy;
    copy.begin({.global_step = 1500, .epoch = 2, .step_in_epoch = 300});
    before.capture(copy);
    std::vector<std::string> notices;
    after.restore(copy.take(), "a.ckpt", [&](const std::string& line) { notices.push_back(line); });
    EXPECT_EQ(notices, std::vector<std::string>{});
    after.end_epoch(rank.state.home, {.global_step = 1800, .epoch = 3});
    engine::StateCopy end;
    end.begin({});
    after.capture(end);
    EXPECT_EQ(end.checkpoint().counters.front().second, 2) << "epochs";
  });
}

TEST(EvaluationAfterALoss, ThatWasDueIsMadeUp) {
  const TemporaryDirectory folder;
  // The report is due before the evaluation.
  const Options options{.evaluate = {.count = 1, .epochs = true},
                        .log_every = kStepsPerEpoch,
                        .folder = folder.path().string()};
  on_ranks(2, options, [](Rank& rank) {
    fail_once(rank, [&rank] { return rank.step() == kStepsPerEpoch; });
    EXPECT_THROW(rank.run(), PeerError);
    EXPECT_FALSE(has(rank, "evaluated " + std::to_string(kStepsPerEpoch)));
  });
  on_ranks(2, options, [](Rank& rank) {
    rank.resume();
    EXPECT_EQ(rank.events.front(), "evaluated " + std::to_string(kStepsPerEpoch));
  });
}

// The first evaluation is the best so far, and its save fails.
TEST(BestAfterALoss, IsNamed) {
  for (const bool elastic : {false, true}) {
    SCOPED_TRACE(elastic);
    const TemporaryDirectory folder;
    const Options options{
        .steps = 3,
        .evaluate = {.count = 2},
        .folder = folder.path().string(),
        .best = engine::BestModelOptions{.measure = engine::Measure::kLoss, .min_delta = 0},
        .supports_rollback = elastic};
    on_ranks(2, options, [&](Rank& rank) {
      fail_once(rank, [&rank] { return has(rank, "evaluated 2"); });
      EXPECT_THROW(rank.run(), PeerError);
      if (!elastic) return;
      rank.done = {.evaluated = 2, .saved = -1};
      rank.after_step = [](std::int64_t) { throw PeerError("another rank is gone"); };
      EXPECT_THROW(rank.run(), PeerError);
    });
    EXPECT_EQ(io::find_best_checkpoint(folder.path().string()),
              folder / io::checkpoint_file_name(2));
  }
}

}  // namespace
