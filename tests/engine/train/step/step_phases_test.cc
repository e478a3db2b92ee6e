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

// Four steps on three ranks, one of which is slow in its update. What rank 0 was told.
Keep run_with_slow_rank(milliseconds delay) {
  Keep told;
  trainer_fixture::in_threads(kPhaseRanks, [&](backends::Group& group) {
    const auto control = group.make_communicator(), wire = group.make_communicator();
    tiny_training::Parts parts({.rank = group.rank(), .world_size = kPhaseRanks});
    trainer_fixture::DelayedSgd optimizer(parts.model.parameters.values,
                                          group.rank() == kSlowRank ? delay : milliseconds(0));
    engine::FlatBuffer& gradients = parts.model.parameters.gradients;
    const auto work =
        engine::make_accumulated_work({parts.plan, parts.model, optimizer, parts.pool}, {});
    const auto policy =
        engine::make_gradient_averaging(engine::make_plain_sum(*wire, gradients), gradients);
    Keep keep;
    tiny_training::train(parts, {.optimizer = optimizer,
                                 .work = *work,
                                 .policy = *policy,
                                 .control = *control,
                                 .steps = 4,
                                 .log_every = 2,
                                 .observer = &keep});
    EXPECT_EQ(keep.reports.size(), 2u);
    if (group.rank() == 0) told = std::move(keep);
  });
  return told;
}

TEST(StepPhases, TheSlowRankIsNamedAlthoughAllStepsTakeEquallyLong) {
  // So long that the load of the machine makes no other rank as slow.
  Keep told;
  double seconds = 0;
  for (milliseconds delay(60); delay < milliseconds(20'000); delay *= 4) {
    seconds = std::chrono::duration<double>(delay).count();
    told = run_with_slow_rank(delay);
    if (2 * std::max(told.ranks[0].own(), told.ranks[1].own()) < seconds) break;
  }
  const engine::StepReport& report = told.reports.back();
  EXPECT_EQ(report.slowest_rank, kSlowRank);
  EXPECT_GT(report.slowest_ratio, 1.5);
  ASSERT_EQ(told.ranks.size(), static_cast<std::size_t>(kPhaseRanks));
  EXPECT_GE(told.ranks[kSlowRank].update, seconds);
  EXPECT_LT(told.ranks[0].own(), seconds);
  EXPECT_GT(told.ranks[0].communication, seconds / 2) << "the others wait for it";
  EXPECT_LT(told.ranks[kSlowRank].communication, told.ranks[0].communication);
  EXPECT_NEAR(report.phases.update,
              (told.ranks[0].update + told.ranks[1].update + told.ranks[2].update) / 3, 1e-9);
  for (const engine::StepPhases& rank : told.ranks) {
    for (const double part :
         {rank.data, rank.forward, rank.backward, rank.communication, rank.update})
      EXPECT_GE(part, 0);
    EXPECT_GT(rank.forward, 0);
    EXPECT_GT(rank.backward, 0);
  }
}

}  // namespace
