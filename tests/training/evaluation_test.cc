// Exact evaluation: the same counts and the same bits of the loss for any number of ranks, and no
// byte of the state changed.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/train/evaluator.h"
#include "engine/train/replicas/state_digest.h"
#include "engine/train/saving/weights.h"
#include "models/model_catalog.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/training/session_runner.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/report/observers/console_observer.h"
#include "tools/run/session/train_session.h"

namespace {

io::Dataset images(std::int64_t count, std::int64_t classes) {
  io::Dataset set;
  set.name = "test";
  set.set_shape({6, 6, 1});
  set.as<io::ClassLabels>().count = classes;
  std::uint64_t random = 1;
  const auto next = [&random] {
    return random = random * 6364136223846793005u + 1442695040888963407u, random >> 40;
  };
  for (std::int64_t i = 0; i < count * 36; ++i)
    set.as<io::ImageSamples>().pixels.push_back(static_cast<std::uint8_t>(next()));
  for (std::int64_t i = 0; i < count; ++i)
    set.as<io::ClassLabels>().ids.push_back(
        static_cast<std::int32_t>(next() % static_cast<std::uint64_t>(classes)));
  set.as<io::ImageSamples>().format.mean = {0.5f};
  set.as<io::ImageSamples>().format.deviation = {0.25f};
  return set;
}

constexpr auto kSquared = engine::ops::RegressionLoss::kSquared;

std::optional<engine::ops::RegressionLoss> loss_for(const io::Dataset& set) {
  if (set.find<io::MultiLabels>() != nullptr) return engine::ops::RegressionLoss::kLogistic;
  return set.target() != nullptr ? std::optional(kSquared) : std::nullopt;
}

struct Digests {
  engine::StateDigest values, gradients, running, counters;
  bool operator==(const Digests&) const = default;
};
Digests digests(const engine::ModelState& s) {
  return {engine::digest(s.parameters.values), engine::digest(s.parameters.gradients),
          engine::digest(s.running), engine::digest(s.counters)};
}

// What rank 0 reports; every rank must report the same.
engine::EvalReport evaluate(const std::string& model, const io::Dataset& set, int world,
                            int threads = 1) {
  std::vector<engine::EvalReport> reports(static_cast<std::size_t>(world));
  tools::run_inproc_ranks(
      world, test_support::deadline_ms(60'000), [&](std::unique_ptr<backends::Group> group) {
        const auto control = group->make_communicator();
        const engine::Graph graph = models::build_model(
            model,
            {.sample_shape = {6, 6, 1}, .classes = set.classes(), .regression = loss_for(set)});
        engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
        // Rank 0's model counts, whatever the others have.
        state.initialize(graph, static_cast<std::uint64_t>(group->rank()));
        engine::ThreadPool pool(threads);
        engine::Evaluator evaluator(*control, graph, state, pool, set, {});
        const Digests before = digests(state);
        const engine::EvalReport first = evaluator.run(), second = evaluator.run();
        EXPECT_EQ(digests(state), before);
        EXPECT_EQ(first.loss, second.loss);
        reports[static_cast<std::size_t>(group->rank())] = second;
        group->leave();
        return 0;
      });
  for (const engine::EvalReport& report : reports) {
    EXPECT_EQ(report.loss, reports[0].loss);
    EXPECT_EQ(report.correct, reports[0].correct);
  }
  return reports[0];
}

// A signal that one rank got is enough, and after it a whole one is as before.
TEST(Evaluation, IsGivenUpByAllRanksForASignalOfOne) {
  const io::Dataset set = images(1'000, 10);
  for (const int world : {1, 3}) {
    tools::run_inproc_ranks(
        world, test_support::deadline_ms(60'000), [&](std::unique_ptr<backends::Group> group) {
          const auto control = group->make_communicator();
          const engine::Graph graph =
              models::build_model("mlp", {.sample_shape = {6, 6, 1}, .classes = set.classes()});
          engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
          state.initialize(graph, 1);
          engine::ThreadPool pool(1);
          engine::Evaluator evaluator(*control, graph, state, pool, set, {});
          std::atomic<int> signal = 0;
          int stop = 0;
          const double loss = evaluator.run().loss;
          if (group->rank() == world - 1) signal = SIGTERM;
          EXPECT_FALSE(evaluator.run_unless(signal, stop));
          EXPECT_EQ(stop, SIGTERM);
          signal = 0, stop = 0;
          const auto report = evaluator.run_unless(signal, stop);
          EXPECT_TRUE(report && report->loss == loss && report->samples == 1'000);
          EXPECT_EQ(stop, 0);
          group->leave();
          return 0;
        });
  }
}

class EvaluationOf : public testing::TestWithParam<std::int64_t> {};

TEST_P(EvaluationOf, IsTheSameForEveryWorldSize) {
  const io::Dataset set = images(GetParam(), 10);
  const engine::EvalReport one = evaluate("mlp", set, 1);
  EXPECT_EQ(one.samples, GetParam());
  EXPECT_EQ(one.rows, GetParam());
  EXPECT_GE(one.top5, one.correct);
  EXPECT_NEAR(one.loss, std::log(10.0), 0.5);
  if (GetParam() > 100) {
    EXPECT_NEAR(one.top5_accuracy(), 0.5, 0.05);  // labels know nothing of the images
  }
  for (int world = 2; world <= 8; ++world) {
    const engine::EvalReport many = evaluate("mlp", set, world);
    EXPECT_EQ(many.samples, one.samples) << world;
    EXPECT_EQ(many.rows, one.rows) << world;
    EXPECT_EQ(many.correct, one.correct) << world;
    EXPECT_EQ(many.top5, one.top5) << world;
    EXPECT_EQ(many.loss, one.loss) << world << " ranks: another bit in the loss";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, EvaluationOf, testing::Values(1, 7, 10'000, 10'001));

TEST(Evaluation, ThreadsDoNotChangeTheCounts) {
  const io::Dataset set = images(1000, 10);
  const engine::EvalReport one = evaluate("convnet", set, 2, 1),
                           two = evaluate("convnet", set, 1, 2);
  EXPECT_EQ(one.correct, two.correct);
  EXPECT_NEAR(one.loss, two.loss, 1e-7 * one.loss);
}

TEST(Evaluation, Top5IsSaidOfMoreThanFiveClassesOnly) {
  EXPECT_FALSE(evaluate("mlp", images(30, 5), 2).top5);
  const engine::EvalReport six = evaluate("mlp", images(30, 6), 2);
  ASSERT_TRUE(six.top5);
  EXPECT_CONTAINS(tools::eval_text(six), ", top-5 ");
}

// Rows of numbers whose target is their sum and some noise, standardized by mean 100, deviation 20.
io::Dataset rows_with_targets(std::int64_t count) {
  io::FeatureSamples rows{.extents = {6, 6, 1}};
  io::TargetValues targets{.scale = {.name = "price", .mean = 100, .deviation = 20}};
  const std::vector<std::uint8_t> bytes = images(count, 1).as<io::ImageSamples>().pixels;
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (std::int64_t k = 0; k < 36; ++k) {
      rows.values.push_back(static_cast<float>(bytes[static_cast<std::size_t>(36 * i + k)]) / 128 -
                            1);
      sum += rows.values.back() / 6;
    }
    targets.values.push_back(sum);
  }
  return {.name = "test", .samples = std::move(rows), .labels = std::move(targets)};
}

TEST(Evaluation, ErrorsOfNumbersAreTheSameForEveryWorldSize) {
  for (const std::int64_t count : {1, 7, 1001}) {
    const io::Dataset set = rows_with_targets(count);
    const engine::EvalReport one = evaluate("mlp", set, 1);
    ASSERT_TRUE(one.errors);
    EXPECT_EQ(one.rows, count);
    EXPECT_FALSE(one.top5);
    // The loss is the mean of squares of standardized numbers, of which the unit is 20.
    EXPECT_NEAR(one.errors->mse, 400 * one.loss, 1e-4 * one.errors->mse);
    EXPECT_LE(one.errors->mae * one.errors->mae, one.errors->mse * (1 + 1e-12));
    EXPECT_EQ(std::isnan(one.errors->r2), count == 1) << "one target has no variance";
    EXPECT_EQ(tools::eval_text(one).find("R2 undefined") != std::string::npos, count == 1);
    for (int world = 2; world <= 5; ++world) {
      const engine::EvalReport many = evaluate("mlp", set, world);
      ASSERT_TRUE(many.errors);
      EXPECT_EQ(many.loss, one.loss) << world;
      EXPECT_EQ(many.errors->mse, one.errors->mse) << world;
      EXPECT_EQ(many.errors->mae, one.errors->mae) << world;
      if (count > 1) {
        EXPECT_EQ(many.errors->r2, one.errors->r2) << world;
      }
    }
  }
}

// Three labels that know nothing of the images; every fifth value is unknown.
io::Dataset images_with_labels(std::int64_t count) {
  io::Dataset set = images(count, 8);
  io::MultiLabels labels{.names = {"a", "b", "c"}};
  for (const std::int32_t bits : set.as<io::ClassLabels>().ids)
    for (int k = 0; k < 3; ++k)
      labels.values.push_back(labels.values.size() % 5 == 4
                                  ? std::numeric_limits<float>::quiet_NaN()
                                  : static_cast<float>(bits >> k & 1));
  set.labels = std::move(labels);
  return set;
}

TEST(Evaluation, ScoresOfLabelsAreTheSameForEveryWorldSize) {
  for (const std::int64_t count : {1, 7, 1001}) {
    const io::Dataset set = images_with_labels(count);
    const engine::EvalReport one = evaluate("mlp", set, 1);
    ASSERT_TRUE(one.labels);
    EXPECT_FALSE(one.has_classes());
    EXPECT_EQ(one.samples, count);
    EXPECT_FALSE(one.top5);
    EXPECT_NEAR(one.loss, std::log(2.0), 0.5);
    std::int64_t known = 0;
    for (const engine::LabelScore& label : one.labels->labels) known += label.known;
    EXPECT_EQ(known, set.as<io::MultiLabels>().known());
    for (int world = 2; world <= 8; ++world) {
      const engine::EvalReport many = evaluate("mlp", set, world);
      ASSERT_TRUE(many.labels);
      EXPECT_EQ(many.loss, one.loss) << world;
      for (std::size_t k = 0; k < 3; ++k)
        if (one.labels->labels[k].positives > 0)
          EXPECT_EQ(many.labels->labels[k].average_precision,
                    one.labels->labels[k].average_precision)
              << world;
      EXPECT_EQ(many.labels->micro_f1(), one.labels->micro_f1()) << world;
      EXPECT_EQ(many.labels->macro_f1(), one.labels->macro_f1()) << world;
      if (!std::isnan(one.labels->mean_roc_auc())) {
        EXPECT_EQ(many.labels->mean_roc_auc(), one.labels->mean_roc_auc()) << world;
      }
    }
  }
}

TEST(Evaluation, PerplexityIsSaidOfText) {
  engine::EvalReport report{.progress = {},
                            .split = "test",
                            .loss = std::log(8.0),
                            .samples = 2,
                            .rows = 20,
                            .correct = 5,
                            .top5 = {},
                            .text = true};
  EXPECT_DOUBLE_EQ(report.perplexity(), 8);
  EXPECT_DOUBLE_EQ(report.accuracy(), 0.25);
  EXPECT_EQ(tools::eval_text(report), "loss 2.0794, accuracy 25.00 % (5/20), perplexity 8.000");
}

TEST(Evaluation, ComesAtTheEndOfEveryRunThatHasATestSet) {
  using Steps = std::vector<std::int64_t>;
  const auto evaluated = [](const session_runner::Options& more) {
    return session_runner::train(2, session_runner::with("steps=7", more))[1].evaluated;
  };
  EXPECT_EQ(evaluated("eval-every=1e"), (Steps{5, 7}));  // five steps an epoch
  EXPECT_EQ(evaluated("eval-every=3s"), (Steps{3, 6, 7}));
  EXPECT_EQ(evaluated("eval-every=7s"), Steps{7}) << "once";
  EXPECT_EQ(evaluated("eval-every=100e"), Steps{7});
  EXPECT_EQ(evaluated("eval-every=0"), Steps{});
}

// What was evaluated, as the metrics have it.
struct Evaluated {
  std::int64_t step;
  std::string weights;
  double loss;
  bool operator==(const Evaluated&) const = default;
};
void PrintTo(const Evaluated& e, std::ostream* out) {
  *out << e.weights << " after step " << e.step << ": " << e.loss;
}

// Notes evaluations, and asks one rank to stop after a step, or between its two evaluations.
class StopAt : public engine::TrainObserver {
 public:
  StopAt(std::vector<Evaluated>& evaluated, std::int64_t step, bool between,
         std::atomic<int>& signal)
      : evaluated_(evaluated), step_(step), between_(between), signal_(signal) {}
  void on_step(const engine::TrainProgress& p) override {
    if (!between_ && p.global_step == step_) signal_ = SIGTERM;
  }
  void on_eval(const engine::EvalReport& r) override {
    evaluated_.push_back({r.progress.global_step, r.weights, r.loss});
    if (between_ && r.progress.global_step == step_) signal_ = SIGTERM;
  }

 private:
  std::vector<Evaluated>& evaluated_;
  const std::int64_t step_;
  const bool between_;
  std::atomic<int>& signal_;
};

// Of a run that goes on in its folder, as the program does. Step 0: to the end.
void run_until(int world, const session_runner::Options& options, std::int64_t step, bool between,
               std::vector<Evaluated>& evaluated) {
  const tools::RunConfig config = session_runner::make_config(options);
  tools::run_inproc_ranks(
      world, test_support::deadline_ms(60'000), [&](std::unique_ptr<backends::Group> group) {
        std::atomic<int> signal = 0;
        std::vector<Evaluated> own;
        tools::TrainSession session(config, *group);
        static_cast<void>(session.start_state());
        const bool stops = group->rank() == 0;  // who has a share of the test set
        session.add_observer(std::make_unique<StopAt>(group->rank() == 0 ? evaluated : own,
                                                      stops ? step : 0, between, signal));
        if (!session.facts().is_complete()) {
          const engine::TrainResult end = session.run(signal);
          EXPECT_EQ(end.signal, step > 0 ? SIGTERM : 0) << "to stop after step " << step;
        }
        group->leave();
        return 0;
      });
}

TEST(Evaluation, ThatAStopCutsOffIsMadeUpForOnceWhenTheRunGoesOn) {
  struct CutOff {
    session_runner::Options options;
    std::int64_t step;
    bool between;
  };
  // Five steps an epoch.
  const std::vector<CutOff> cases{{"eval-every=3s", 3, false},
                                  {"eval-every=1e save-every=5s", 5, false},
                                  {"eval-every=1e save-async=true", 5, false},
                                  {"eval-every=1e ema=0.5", 5, false},
                                  {"eval-every=1e ema=0.5", 5, true},
                                  {"eval-every=5e average-last=1", 10, false},
                                  {"eval-every=5e average-last=1", 10, true},
                                  {"eval-every=1e sync=params sync-every=2", 5, false},
                                  {"eval-every=5e", 10, false}};  // the one at the end
  for (const CutOff& c : cases)
    for (const int world : {1, 2}) {
      if (world == 1 && c.options.contains("sync")) continue;
      SCOPED_TRACE(testing::PrintToString(c.options) + " on " + std::to_string(world));
      const test_support::TemporaryDirectory folder;
      const auto kept = session_runner::with(
          std::string("epochs=2 save-dir=") + folder / "run" + " resume=auto", c.options);
      std::vector<Evaluated> whole, parts;
      run_until(world, session_runner::with(kept, std::string("save-dir=") + folder / "whole"), 0,
                false, whole);
      run_until(world, kept, c.step, c.between, parts);
      EXPECT_LT(parts.size(), whole.size());
      const std::size_t before = parts.size();
      const bool in_sync = !c.options.contains("sync");  // else a stop in an epoch changes the run
      if (c.step < 10 && in_sync) {
        run_until(world, kept, c.step + 1, false, parts);  // once, also where it is stopped again
        EXPECT_GT(parts.size(), before);
      }
      for (int again = 0; again < 2; ++again) run_until(world, kept, 0, false, parts);
      EXPECT_EQ(parts, whole);
    }
}

}  // namespace
