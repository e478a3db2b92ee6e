// The best model: what is better, patience, both over a resumption, and the folder's `best`.
#include "engine/train/best_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace {

using engine::BestModel;
using engine::Measure;
using session_runner::Options;
using session_runner::train;
using session_runner::with;
using test_support::TemporaryDirectory;

// The evaluation after `step` with this loss, and `correct` right of a thousand.
engine::EvalReport evaluation(std::int64_t step, double loss, std::int64_t correct = 0) {
  return {.progress = {.global_step = step},
          .split = "test",
          .loss = loss,
          .samples = 1000,
          .rows = 1000,
          .correct = correct,
          .top5 = correct};
}

bool update(BestModel& best, engine::EvalReport report) { return best.update(report); }

TEST(BestModel, IsTheHighestAccuracyOrTheLowestLoss) {
  BestModel by_accuracy({.measure = Measure::kAccuracy}), by_loss({.measure = Measure::kLoss}),
      by_perplexity({.measure = Measure::kPerplexity});
  const engine::EvalReport reports[] = {evaluation(1, 2, 500), evaluation(2, 1, 400),
                                        evaluation(3, 1.5, 501), evaluation(4, 1, 501)};
  const bool accurate[] = {true, false, true, false}, low[] = {true, true, false, false};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(update(by_accuracy, reports[i]), accurate[i]) << i;
    EXPECT_EQ(update(by_loss, reports[i]), low[i]) << i;
    EXPECT_EQ(update(by_perplexity, reports[i]), low[i]) << i;
  }
  engine::EvalReport last = evaluation(5, 9, 0);
  by_accuracy.update(last);
  ASSERT_TRUE(last.best);
  EXPECT_EQ(last.best->value, 0.501);
  EXPECT_EQ(last.best->step, 3);
  EXPECT_FALSE(last.best->this_one);
}

TEST(BestModel, IsTheHighestR2) {
  BestModel best({.measure = Measure::kR2});
  const auto with_r2 = [](std::int64_t step, double r2) {
    engine::EvalReport report = evaluation(step, 1);
    report.errors = engine::RegressionErrors{.r2 = r2};
    return report;
  };
  EXPECT_FALSE(update(best, evaluation(1, 1))) << "no errors, no R2";
  EXPECT_TRUE(update(best, with_r2(2, -3)));
  EXPECT_FALSE(update(best, with_r2(3, std::nan(""))));
  EXPECT_TRUE(update(best, with_r2(4, 0.5)));
  EXPECT_FALSE(update(best, with_r2(5, 0.25)));
}

TEST(BestModel, ANanIsNeverTheBest) {
  BestModel best({.measure = Measure::kLoss, .patience = 2});
  engine::EvalReport report = evaluation(1, std::nan(""));
  EXPECT_FALSE(best.update(report));
  EXPECT_FALSE(report.best);
  EXPECT_TRUE(update(best, evaluation(2, 3)));
  EXPECT_FALSE(update(best, evaluation(3, std::nan(""))));
  EXPECT_FALSE(best.should_stop_early());
  EXPECT_FALSE(update(best, evaluation(4, std::nan(""))));
  EXPECT_TRUE(best.should_stop_early());
}

TEST(BestModel, ASecondEvaluationAfterAStepCountsForNothing) {
  BestModel best({.measure = Measure::kLoss, .patience = 2});
  EXPECT_TRUE(update(best, evaluation(1, 1)));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(update(best, evaluation(1, 0.5)));
  EXPECT_FALSE(best.should_stop_early());
}

// Small gains are the best, but don't count for the patience, as in Keras's EarlyStopping: from
// the last evaluation that did.
TEST(BestModel, PatienceCountsImprovementsOfAtLeastDelta) {
  BestModel best({.measure = Measure::kLoss, .patience = 3, .min_delta = 0.5});
  EXPECT_TRUE(update(best, evaluation(1, 2)));
  EXPECT_TRUE(update(best, evaluation(2, 1.75)));
  EXPECT_TRUE(update(best, evaluation(3, 1.5)));  // 0.5 less than 2
  EXPECT_TRUE(update(best, evaluation(4, 1.25)));
  EXPECT_FALSE(update(best, evaluation(5, 1.25)));
  EXPECT_FALSE(best.should_stop_early());
  EXPECT_TRUE(update(best, evaluation(6, 1.125)));
  EXPECT_TRUE(best.should_stop_early());
  EXPECT_EQ(best.why_stopped(), "no improvement of loss by at least 0.5 in 3 evaluations");
}

TEST(BestModel, GoesOnFromACheckpointBitByBit) {
  const engine::BestModelOptions options{
      .measure = Measure::kLoss, .patience = 3, .min_delta = 0.1};
  BestModel whole(options), resumed(options);
  EXPECT_TRUE(update(whole, evaluation(1, 1.0 / 3)));
  EXPECT_TRUE(update(whole, evaluation(2, 0.3)));
  engine::StateCopy copy;
  whole.capture(copy);
  const io::Checkpoint checkpoint = copy.take();
  resumed.restore(checkpoint, "a.ckpt", [](const std::string& line) { ADD_FAILURE() << line; });
  for (BestModel* best : {&whole, &resumed}) {
    EXPECT_FALSE(update(*best, evaluation(2, 0.1))) << "compared before";
    EXPECT_FALSE(update(*best, evaluation(3, 0.3)));
    EXPECT_TRUE(update(*best, evaluation(4, std::nextafter(0.3, 0.0))));
    EXPECT_TRUE(best->should_stop_early());
  }

  std::string reported;
  BestModel other({.measure = Measure::kAccuracy, .patience = 1});
  other.restore(checkpoint, "a.ckpt", [&](const std::string& line) { reported = line; });
  EXPECT_VALUES(reported, "a.ckpt accuracy reset");
  EXPECT_TRUE(update(other, evaluation(2, 5, 1)));
  EXPECT_FALSE(other.should_stop_early());
}

TEST(BestModel, IsNotComparedWithAnEvaluationOfOtherTestSamples) {
  const engine::BestModelOptions options{.patience = 1, .test_digest = "one"};
  BestModel first(options), same(options), other({.patience = 1, .test_digest = "two"});
  EXPECT_TRUE(update(first, evaluation(1, 1, 900)));
  engine::StateCopy copy;
  first.capture(copy);
  io::Checkpoint checkpoint = copy.take();
  checkpoint.test_digest = "one";
  same.restore(checkpoint, "a.ckpt", [](const std::string& line) { ADD_FAILURE() << line; });
  EXPECT_FALSE(update(same, evaluation(2, 1, 800)));
  std::string reported;
  other.restore(checkpoint, "a.ckpt", [&](const std::string& line) { reported = line; });
  EXPECT_VALUES(reported, "a.ckpt other test samples reset");
  EXPECT_TRUE(update(other, evaluation(2, 1, 800)));
  EXPECT_FALSE(other.should_stop_early());
}

// Of losses, by the evaluations that were made.
std::int64_t lowest(const std::vector<engine::EvalReport>& evals) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < evals.size(); ++i)
    if (evals[i].loss < evals[best].loss) best = i;
  return evals[best].progress.global_step;
}

// Labels are random: the loss on the test set falls and then rises again.
Options noisy() {
  return "synthetic-size=60 epochs=12 eval-every=1e lr=0.1 keep-last=1 save-every=0";
}

TEST(KeepBest, TheFolderNamesTheBestWhichStays) {
  const TemporaryDirectory folder;
  const auto ranks =
      train(2, with(noisy(), "save-dir=" + folder.path().string() + " keep-best=loss"));
  const std::int64_t step = lowest(ranks[0].evals),
                     last = ranks[0].evals.back().progress.global_step;
  ASSERT_LT(step, last) << "the last is the best: this proves nothing";
  EXPECT_EQ(io::find_best_checkpoint(folder.path().string()),
            folder / io::checkpoint_file_name(step));
  EXPECT_TRUE(std::filesystem::exists(folder / io::checkpoint_file_name(last)));
  ASSERT_EQ(ranks[0].evals.size(), ranks[1].evals.size());
  for (std::size_t i = 0; i < ranks[0].evals.size(); ++i) {
    ASSERT_TRUE(ranks[0].evals[i].best && ranks[1].evals[i].best);
    EXPECT_EQ(ranks[0].evals[i].best->step, ranks[1].evals[i].best->step);
    EXPECT_EQ(ranks[0].evals[i].best->this_one, ranks[1].evals[i].best->this_one);
    EXPECT_EQ(ranks[0].evals[i].best->this_one,
              ranks[0].evals[i].best->step == ranks[0].evals[i].progress.global_step);
  }
}

// The model in `best` is the one that was evaluated.
TEST(KeepBest, WhatIsSavedIsWhatWasEvaluatedBetweenAveragingsToo) {
  const TemporaryDirectory folder;
  const Options options =
      with(noisy(), "save-dir=" + folder.path().string() +
                        " keep-best=loss sync=params sync-every=4 eval-every=3s");
  const auto ranks = train(2, options);
  const std::string best = io::find_best_checkpoint(folder.path().string());
  ASSERT_FALSE(best.empty());
  const auto resumed = train(
      1, with(noisy(),
              std::string("init-from=") + best +
                  " lr=1e-300 epochs= steps=1 save-every= keep-last= momentum=0 eval-every=1s"));
  const std::int64_t step = lowest(ranks[0].evals);
  for (const engine::EvalReport& report : ranks[0].evals) {
    if (report.progress.global_step == step) {
      EXPECT_EQ(report.loss, resumed[0].evals.back().loss);
    }
  }
}

TEST(KeepBest, ByItselfItChangesNoTraining) {
  const TemporaryDirectory folder;
  const Options local = with(noisy(), "save-dir=" + folder.path().string() +
                                          " epochs=4 sync=params sync-every=4 eval-every=3s");
  const auto by_itself = train(2, local), never = train(2, with(local, "keep-best=none"));
  EXPECT_EQ(by_itself[0].losses, never[0].losses);
  EXPECT_FALSE(by_itself[0].evals.back().best) << "replicas are apart where they are evaluated";

  const auto saving = train(2, with(noisy(), "save-dir=" + folder.path().string()));
  EXPECT_EQ(saving[0].losses, train(2, with(noisy(), "save-every= keep-last="))[0].losses);
  ASSERT_TRUE(saving[0].evals.back().best);
  EXPECT_EQ(saving[0].evals.back().best->measure, Measure::kAccuracy);
}

TEST(KeepBest, SurvivesAResumption) {
  const TemporaryDirectory whole, parts;
  const Options options = with(noisy(), "keep-best=loss save-every=1s early-stop=4");
  const auto once = train(2, with(options, "save-dir=" + whole.path().string()));
  std::vector<session_runner::RankResult> last;
  for (const char* epochs : {"1", "3", "4", "12", "12"}) {
    auto part = train(2, with(options, "save-dir=" + parts.path().string() + " epochs=" + epochs +
                                           " resume=auto"));
    if (!part[0].evals.empty()) last = std::move(part);
  }
  ASSERT_TRUE(once[0].evals.back().best && last[0].evals.back().best);
  EXPECT_EQ(once[0].evals.back().best->value, last[0].evals.back().best->value);
  EXPECT_EQ(once[0].evals.back().best->step, last[0].evals.back().best->step);
  EXPECT_EQ(once[0].evals.back().progress.global_step, last[0].evals.back().progress.global_step);
  EXPECT_EQ(std::filesystem::path(io::find_best_checkpoint(whole.path().string())).filename(),
            std::filesystem::path(io::find_best_checkpoint(parts.path().string())).filename());
}

TEST(EarlyStop, EndsTheRunAndSavesTheLastState) {
  const TemporaryDirectory folder;
  const auto ranks = train(2, with(noisy(), "save-dir=" + folder.path().string() +
                                                " epochs=60 keep-best=loss early-stop=3"));
  const std::int64_t last = ranks[0].evals.back().progress.global_step;
  EXPECT_LT(last, 60 * 5);
  EXPECT_EQ(last, lowest(ranks[0].evals) + 3 * 5);
  EXPECT_EQ(ranks[0].stopped_early, "no improvement of loss in 3 evaluations");
  EXPECT_EQ(ranks[1].stopped_early, ranks[0].stopped_early);
  EXPECT_TRUE(std::filesystem::exists(folder / io::checkpoint_file_name(last)));
  // Out of patience once and for all, unless there is more of it.
  const Options again =
      with(noisy(), "save-dir=" + folder.path().string() + " epochs=60 keep-best=loss resume=auto");
  EXPECT_TRUE(train(2, with(again, "early-stop=3"))[0].evals.empty());
  EXPECT_FALSE(train(2, with(again, "early-stop=4"))[0].evals.empty());
}

TEST(EarlyStop, IsRefusedWhereItCannotBe) {
  EXPECT_THROW(train(1, "early-stop=2"), io::ConfigError);  // no evaluation
  EXPECT_THROW(train(1, "early-stop=2 keep-best=perplexity eval-every=1e"), io::ConfigError);
  EXPECT_THROW(train(1, "early-stop=2 keep-best=top5 synthetic-classes=5 eval-every=1e"),
               io::ConfigError);
}

}  // namespace
