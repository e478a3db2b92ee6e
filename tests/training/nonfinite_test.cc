// What becomes of a training whose numbers are not finite any more: it ends, steps are skipped, or
// it goes on; on all ranks alike, and never at the expense of a good checkpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/core/error.h"
#include "engine/train/checks/finite_guard.h"
#include "io/base/files/io_error.h"
#include "tests/engine/optim/typed_optimizers.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"
#include "tools/launch/workers/worker_threads.h"

namespace {

namespace fs = std::filesystem;
using session_runner::AfterStep;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::train;
using session_runner::with;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A bit flips on `rank` after `step`: the last parameter in model order.
AfterStep poison(int rank, std::int64_t step) {
  return [=](int own, engine::TrainState& state) {
    if (own != rank || state.progress.global_step != step) return;
    const engine::HostView view(state.home, engine::Access::kWrite);
    const engine::FlatBuffer& values = state.model.parameters.values;
    values.view(*values.find("layers.2.bias")).as<float>()[1] = kNan;
  };
}

std::string error_of(int world, const Options& options, const AfterStep& after_step = {}) {
  return test_support::error_of<engine::NonFiniteError>([&] { train(world, options, after_step); });
}

std::set<std::string> checkpoints(const test_support::TemporaryDirectory& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    if (entry.path().extension() == ".ckpt") names.insert(entry.path().filename().string());
  return names;
}

TEST(NonFinite, ADivergedRunEndsAndSaysSinceWhen) {
  EXPECT_VALUES(error_of(1, "steps=5", poison(0, 3)),
                "loss finite step 3, not finite step 4; no checkpoint --lr, --clip-grad");
  EXPECT_VALUES(error_of(1, "steps=5 lr=1e6"), "loss finite step 2, not finite step 3;");
}

TEST(NonFinite, OneRanksNumbersEndAllOfThem) {
  for (const Options& sync : {Options{}, Options("sync=params sync-every=2"), Options("sync=none"),
                              Options("reduction-order=canonical")}) {
    const bool canonical = sync.contains("reduction-order");
    const std::string error = error_of(canonical ? 2 : 3, with(sync, "steps=5"), poison(1, 2));
    EXPECT_EQ(error.find("the loss was finite at step 2, not finite at step 3; "), 0u) << error;
  }
}

TEST(NonFinite, ParametersAreLookedAtBeforeASaveAndAtTheEnd) {
  const test_support::TemporaryDirectory folder;
  const Options options =
      "save-dir=" + folder.path().string() + " save-every=1s keep-last=2 steps=5";
  for (const int world : {1, 2}) {
    const std::string error = error_of(world, options, poison(world - 1, 4));
    EXPECT_EQ(error.find("the parameter 'layers.2.bias' is not finite at step 4 (the loss was "
                         "finite at step 4); last good checkpoint: "),
              0u)
        << error;
    EXPECT_CONTAINS(error, "step-00000003.ckpt and a lower --lr");
    EXPECT_EQ(checkpoints(folder),
              (std::set<std::string>{"step-00000002.ckpt", "step-00000003.ckpt"}));
  }
  EXPECT_CONTAINS(error_of(1, "steps=5", poison(0, 5)), "not finite at step 5");
}

TEST(NonFinite, AWriteInTheBackgroundIsWaitedForAndNamed) {
  const test_support::TemporaryDirectory folder;
  const std::string error =
      error_of(2, "save-dir=" + folder.path().string() + " save-every=1s save-async=true steps=5",
               poison(0, 4));
  EXPECT_CONTAINS(error, "step-00000003.ckpt; continue with --resume ");
}

TEST(NonFinite, AfterAResumptionGoodCheckpointsStay) {
  const test_support::TemporaryDirectory folder;
  const Options options =
      "save-dir=" + folder.path().string() + " save-every=1s keep-last=2 resume=auto";
  train(1, with(options, "steps=3"));
  const std::string error = error_of(1, with(options, "steps=20 lr=1e6"));
  EXPECT_CONTAINS(error, "last good checkpoint: ");
  const std::set<std::string> left = checkpoints(folder);
  for (const std::string& name : left) {
    const io::Checkpoint checkpoint = io::load_checkpoint(folder / name);
    for (const io::NamedArray& array : checkpoint.arrays) {
      if (array.section != io::Section::kParameter) continue;
      for (std::size_t i = 0; i < array.data.size() / sizeof(float); ++i) {
        float value;
        std::memcpy(&value, array.data.data() + i * sizeof value, sizeof value);
        ASSERT_TRUE(std::isfinite(value)) << name << " " << array.name;
      }
    }
  }
  ASSERT_FALSE(left.empty());
  const std::size_t at = error.rfind("step-");
  EXPECT_TRUE(left.contains(error.substr(at, error.find(' ', at) - at))) << error;
}

TEST(NonFinite, ToGoOnWarnsOnceAndPrunesNothingGood) {
  const test_support::TemporaryDirectory folder;
  const Options options = "save-dir=" + folder.path().string() +
                          " save-every=1s keep-last=2 steps=8 on-nonfinite=continue";
  const auto ranks = train(2, options, poison(0, 4));
  for (const RankResult& rank : ranks) {
    ASSERT_EQ(rank.not_finite.size(), 1u);
    EXPECT_EQ(to_string(rank.not_finite[0]),
              "the parameter 'layers.2.bias' is not finite at step 4 (the loss was finite at step "
              "4)");
    EXPECT_EQ(rank.end.global_step, 8);
  }
  const std::set<std::string> left = checkpoints(folder);
  EXPECT_TRUE(left.contains("step-00000002.ckpt") && left.contains("step-00000003.ckpt"));
  // What it left is not gone on with.
  const std::string error = error_of(1, with(options, "on-nonfinite= resume=auto steps=9"));
  EXPECT_VALUES(error, "'layers.0.weight' not finite step 8; no earlier checkpoint");
}

TEST(NonFinite, SkippingIsRefusedWhereItCannotWork) {
  EXPECT_THROW(session_runner::make_config("on-nonfinite=skip compress=topk"), io::ConfigError);
  EXPECT_THROW(session_runner::make_config("on-nonfinite=pause"), io::ConfigError);
}

// Gradients, or the reported loss are not finite in some steps.
class FaultyWork final : public engine::StepWork, private engine::GradientExchange {
 public:
  FaultyWork(tiny_training::Parts& parts, engine::Optimizer& optimizer, std::set<int> gradients,
             std::set<int> losses, engine::StepControl* scaling = nullptr)
      : gradients_(parts.model.parameters.gradients),
        work_(engine::make_accumulated_work({parts.plan, parts.model, optimizer, parts.pool}, {})),
        bad_gradients_(std::move(gradients)),
        bad_losses_(std::move(losses)),
        scaling_(scaling) {}

  void step(const engine::StepRequest& request, engine::StepPhases& phases) override {
    ++step_;
    engine::StepRequest changed = request;
    changed.exchange = this;
    work_->step(changed, phases);
    if (scaling_ != nullptr)
      scaling_->skipped_in_a_row = bad_losses_.contains(step_) ? scaling_->skipped_in_a_row + 1 : 0;
  }
  engine::StepResults results() override {
    engine::StepResults results = work_->results();
    if (bad_losses_.contains(step_)) results.last.loss_sum = NAN;
    if (!bad_losses_.empty() && *bad_losses_.begin() <= step_) results.total.loss_sum = NAN;
    return results;
  }
  engine::StateHome& home() override { return work_->home(); }

 private:
  void ready(std::int64_t) override {}
  void finish() override {
    if (bad_gradients_.contains(step_)) gradients_.span<float>()[3] = kNan;
  }

  const engine::FlatBuffer& gradients_;
  const std::unique_ptr<engine::StepWork> work_;
  const std::set<int> bad_gradients_, bad_losses_;
  engine::StepControl* const scaling_;
  int step_ = 0;
};

struct RankOutcome {
  std::optional<std::int64_t> skipped;
  std::int64_t updates = 0;
  bool finite = false;
  std::string error;
};

// Six steps of a model with BatchNorm on some ranks, each for itself. The outcome on all of them.
struct Faults {
  int world = 1, rank = 0;  // the rank with the faults
  std::set<int> gradients, losses;
  engine::OnNonFinite action = engine::OnNonFinite::kAbort;
  bool scaled = false;  // by a loss scale that skips the steps with bad losses
  int steps = 6;
  double clip_grad = 0;
};
std::vector<RankOutcome> run_with_faults(const Faults& faults) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(faults.world));
  tools::run_inproc_ranks(faults.world, 20'000, [&](std::unique_ptr<backends::Group> group) {
    const auto control = group->make_communicator();
    tiny_training::Parts parts({.shape = {8, 8, 1},
                                .rank = group->rank(),
                                .world_size = faults.world,
                                .model = "convnet"});
    const auto optimizer = engine::make_sgd({}, parts.model.parameters.values);
    const bool faulty = group->rank() == faults.rank;
    engine::StepControl scaling;
    const engine::LossScaleRule rule{.kind = faults.scaled ? engine::LossScaleRule::Kind::kDynamic
                                                           : engine::LossScaleRule::Kind::kOff};
    FaultyWork work(parts, *optimizer, faulty ? faults.gradients : std::set<int>{},
                    faulty || faults.scaled ? faults.losses : std::set<int>{},
                    faults.scaled ? &scaling : nullptr);
    const auto policy = engine::make_no_averaging(faults.world);
    RankOutcome& outcome = outcomes[static_cast<std::size_t>(group->rank())];
    try {
      outcome.skipped = tiny_training::train(parts, {.optimizer = *optimizer,
                                                     .work = work,
                                                     .policy = *policy,
                                                     .control = *control,
                                                     .steps = faults.steps,
                                                     .on_nonfinite = faults.action,
                                                     .clip_grad = faults.clip_grad,
                                                     .loss_scale = rule,
                                                     .scaling = faults.scaled ? &scaling : nullptr})
                            .skipped_steps;
    } catch (const engine::NonFiniteError& error) {
      outcome.error = error.what();
    }
    outcome.updates = optimizer->step_count();
    outcome.finite = !engine::first_not_finite(parts.model, true);
    // BatchNorm counts the batches that it has taken in.
    EXPECT_TRUE(!outcome.error.empty() ||
                parts.model.counters.span<std::int64_t>()[0] == outcome.updates);
    group->leave();
    return 0;
  });
  return outcomes;
}

TEST(SkippedSteps, ChangeNothingOnAnyRank) {
  for (const int world : {1, 3}) {
    for (const RankOutcome& outcome : run_with_faults({.world = world,
                                      .rank = world - 1,
                                      .gradients = {2, 3, 6},
                                      .losses = {},
                                      .action = engine::OnNonFinite::kSkip})) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.skipped, 3);
      EXPECT_EQ(outcome.updates, 3);
      EXPECT_TRUE(outcome.finite);
    }
  }
}

TEST(SkippedSteps, AreCountedOnlyWhereTheyAreAskedFor) {
  for (const RankOutcome& outcome : run_with_faults({.gradients = {2}, .losses = {}})) {
    EXPECT_EQ(outcome.skipped, std::nullopt);
    EXPECT_CONTAINS(outcome.error, "not finite at step 3");
  }
}

TEST(GradientNorm, IsLookedAtWhereItIsComputed) {
  for (const int world : {1, 2})
    for (const RankOutcome& outcome : run_with_faults(
             {.world = world, .rank = world - 1, .gradients = {2}, .losses = {}, .clip_grad = 1}))
      EXPECT_EQ(outcome.error.find("the gradient norm is not finite at step 2 (the loss was finite "
                                   "at step 1); "),
                0u)
          << outcome.error;
}

TEST(LossScaling, DecidesFirst) {
  for (const int world : {1, 2})
    for (const RankOutcome& outcome :
         run_with_faults({.world = world, .gradients = {}, .losses = {2, 3}, .scaled = true}))
      EXPECT_EQ(outcome.error, "") << "the scaler has skipped these steps";
  for (const RankOutcome& outcome : run_with_faults({.gradients = {}, .losses = {2, 3}}))
    EXPECT_EQ(outcome.error.find("the loss was finite at step 1, not finite at step 2"), 0u);
  std::set<int> always;
  for (int step = 2; step <= 200; ++step) always.insert(step);
  for (const RankOutcome& outcome :
       run_with_faults({.gradients = {}, .losses = always, .scaled = true, .steps = 150}))
    EXPECT_EQ(outcome.error.find("the loss was finite at step 1, not finite at step 101"), 0u)
        << outcome.error;
}

TEST(FirstNotFinite, IsInModelOrderAndLooksAtStatisticsWhereAsked) {
  tiny_training::Parts parts({.shape = {8, 8, 1}, .model = "convnet"});
  EXPECT_EQ(engine::first_not_finite(parts.model, true), std::nullopt);
  parts.model.running.span<float>()[2] = -INFINITY;
  EXPECT_EQ(engine::first_not_finite(parts.model, false), std::nullopt);
  const auto statistic = engine::first_not_finite(parts.model, true);
  ASSERT_TRUE(statistic);
  EXPECT_CONTAINS(parts.model.entries[*statistic].name, "running_");
  const engine::FlatBuffer& values = parts.model.parameters.values;
  for (const char* name : {"fc.bias", "layer1.0.weight"}) {
    values.view(*values.find(name)).as<float>()[0] = kNan;
    EXPECT_EQ(parts.model.entries[*engine::first_not_finite(parts.model, false)].name, name);
  }
  EXPECT_EQ(parts.model.entries[*engine::first_not_finite(parts.model, true)].name,
            "layer1.0.weight");
}

}  // namespace
