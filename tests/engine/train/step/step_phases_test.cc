// The times of a step's phases in reports: a rank's own work is counted apart from waiting, so that
// the slow rank can be named.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "tests/engine/train/delayed_sgd.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/engine/train/trainer_fixture.h"
#include "tests/support/time_limits.h"

namespace {

using std::chrono::milliseconds;

constexpr int kPhaseRanks = 3, kSlowRank = 2;

class Keep : public engine::TrainObserver {
 public:
  void on_report(const engine::StepReport& report) override {
    reports.push_back(report);
    ranks.assign(report.ranks.begin(), report.ranks.end());
  }
  std::vector<engine::StepReport> reports;
  std::vector<engine::StepPhases> ranks;
};

// Four steps on three ranks, one of which is slow in its update. Returns the reports of rank 0.
Keep run_with_slow_rank(milliseconds delay) {
  Keep reported;
  trainer_fixture::in_threads(kPhaseRanks, [&](backends::Group& group) {
    const auto control = group.make_communicator(), communicator = group.make_communicator();
    tiny_training::Parts parts({.rank = group.rank(), .world_size = kPhaseRanks});
    trainer_fixture::DelayedSgd optimizer(parts.model.parameters.values,
                                          group.rank() == kSlowRank ? delay : milliseconds(0));
    engine::FlatBuffer& gradients = parts.model.parameters.gradients;
    const auto work =
        engine::make_accumulated_work({parts.plan, parts.model, optimizer, parts.pool}, {});
    const auto policy = engine::make_gradient_averaging(
        engine::make_plain_sum(*communicator, gradients), gradients);
    Keep keep;
    tiny_training::train(parts, {.optimizer = optimizer,
                                 .work = *work,
                                 .policy = *policy,
                                 .control = *control,
                                 .steps = 4,
                                 .log_every = 2,
                                 .observer = &keep});
    EXPECT_EQ(keep.reports.size(), 2u);
    if (group.rank() == 0) reported = std::move(keep);
  });
  return reported;
}

TEST(StepPhases, TheSlowRankIsNamedAlthoughAllStepsTakeEquallyLong) {
  // So long that the load of the machine makes no other rank as slow.
  Keep reported;
  double seconds = 0;
  for (milliseconds delay(60); delay < milliseconds(20'000); delay *= 4) {
    seconds = std::chrono::duration<double>(delay).count();
    reported = run_with_slow_rank(delay);
    if (2 * std::max(reported.ranks[0].own(), reported.ranks[1].own()) < seconds) break;
  }
  const engine::StepReport& report = reported.reports.back();
  EXPECT_EQ(report.slowest_rank, kSlowRank);
  EXPECT_GT(report.slowest_ratio, 1.5);
  ASSERT_EQ(reported.ranks.size(), static_cast<std::size_t>(kPhaseRanks));
  EXPECT_GE(reported.ranks[kSlowRank].update, seconds);
  EXPECT_LT(reported.ranks[0].own(), seconds);
  EXPECT_GT(reported.ranks[0].communication, seconds / 2) << "the others wait for it";
  EXPECT_LT(reported.ranks[kSlowRank].communication, reported.ranks[0].communication);
  EXPECT_NEAR(report.phases.update,
              (reported.ranks[0].update + reported.ranks[1].update + reported.ranks[2].update) / 3,
              1e-9);
  for (const engine::StepPhases& rank : reported.ranks) {
    for (const double part :
         {rank.data, rank.forward, rank.backward, rank.communication, rank.update})
      EXPECT_GE(part, 0);
    EXPECT_GT(rank.forward, 0);
    EXPECT_GT(rank.backward, 0);
  }
}

}  // namespace
