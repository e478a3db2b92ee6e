// The sums that ranks exchange between steps: every field, on every rank alike.
#include "engine/train/step_agreement.h"

#include <gtest/gtest.h>

#include "tests/engine/train/trainer_fixture.h"

namespace {

using engine::StepSums;

TEST(StepAgreement, AllFieldsAreSumsButTheLargestSignalAndTheLongestExchange) {
  const auto said_by = [](double rank) {
    return StepSums{.loss_sum = 1 + rank,
                    .rows = 10 + rank,
                    .correct = 100 + rank,
                    .epoch_rows = 1000 + rank,
                    .not_finite = {.loss = rank, .norm = 2 * rank},
                    .overdue_reports = 1,
                    .work = {.samples = 20 + rank, .seconds = 30 + rank},
                    .step_seconds = 0.5,
                    .exchange_seconds = 4 - rank,
                    .stop_signal = static_cast<std::int64_t>(7 * rank),
                    .pausing = 1,
                    .leaving = 2};
  };
  StepSums sums = said_by(2);
  sums += said_by(1);
  sums += said_by(0);
  EXPECT_EQ(sums.loss_sum, 6);
  EXPECT_EQ(sums.rows, 33);
  EXPECT_EQ(sums.correct, 303);
  EXPECT_EQ(sums.epoch_rows, 3003);
  EXPECT_EQ(sums.not_finite.loss, 3);
  EXPECT_EQ(sums.not_finite.norm, 6);
  EXPECT_EQ(sums.overdue_reports, 3);
  EXPECT_EQ(sums.work.samples, 63);
  EXPECT_EQ(sums.work.seconds, 93);
  EXPECT_EQ(sums.step_seconds, 1.5);
  EXPECT_EQ(sums.exchange_seconds, 4) << "the rank that comes last waits for no message";
  EXPECT_EQ(sums.stop_signal, 14);
  EXPECT_EQ(sums.pausing, 3);
  EXPECT_EQ(sums.leaving, 6);
}

TEST(StepAgreement, ExchangesOverSlowLinksAreLessFrequent) {
  EXPECT_EQ(engine::StepAgreement::interval(0.0001), 0.25);
  EXPECT_DOUBLE_EQ(engine::StepAgreement::interval(0.05), 1);
  EXPECT_EQ(engine::StepAgreement::interval(3), 2) << "a stop must not be noticed too late";
}

// The loss as all ranks see it is that of the tree (0+1)+2, also where another order rounds
// differently.
TEST(StepAgreement, RanksGetTheSameBitsInTheOrderOfTheTree) {
  constexpr double kLosses[] = {0.1, 0.2, 0.3};
  trainer_fixture::on_ranks(3, {}, [&](trainer_fixture::Rank& rank) {
    const engine::LearningRate rate;
    engine::LoopContext context({.total_steps = 1, .evaluate = {}, .save = {}},
                                {.work = *rank.work,
                                 .state = rank.state,
                                 .learning_rate = rate,
                                 .sampler = rank.parts.sampler,
                                 .loader = rank.parts.loader,
                                 .control = *rank.control,
                                 .observers = {},
                                 .island = {},
                                 .activity = {}},
                                rank.stop_signal);
    engine::StepAgreement agreement(context);
    agreement.begin();
    EXPECT_FALSE(agreement.is_due()) << "no step has been done";
    rank.state.progress.global_step = 1;
    EXPECT_TRUE(agreement.is_due());
    if (rank.number() == 2) rank.stop_signal = 15;
    const StepSums sums = agreement.exchange(
        {.loss_sum = kLosses[rank.number()], .work = {.samples = 1.0 + rank.number()}},
        context.clock.seconds());
    for (const double r : {0.0, 1.0, 2.0})
      EXPECT_EQ(agreement.work_of_ranks()[static_cast<std::size_t>(r)].samples, 1 + r);
    EXPECT_EQ(sums.loss_sum, (0.1 + 0.2) + 0.3);
    EXPECT_NE(sums.loss_sum, 0.1 + (0.2 + 0.3)) << "else the order would not matter";
    EXPECT_EQ(agreement.stop_signal(), 15);
    EXPECT_FALSE(agreement.is_due()) << "the next one is at least a step away";
  });
}

}  // namespace
