// The times of a step's phases in reports: a rank's own work is counted apart from waiting, so that
// the slow rank can be named.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/support/time_limits.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/report/observers/console_observer.h"

namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 3, kSlow = 2;

// SGD that takes its time.
class SlowOptimizer : public engine::Optimizer {
 public:
  SlowOptimizer(const engine::FlatBuffer& values, milliseconds delay)
      : Optimizer(*engine::find_optimizer("sgd")),
        sgd_(engine::make_sgd({}, values)),
        delay_(delay) {}
  void step(engine::KernelContext& context, double lr, double scale,
            const engine::FlatBuffer& gradients, engine::FlatBuffer& values) override {
    std::this_thread::sleep_for(delay_);
    sgd_->step(context, lr, scale, gradients, values);
  }
  void step_on_device(engine::KernelContext&, const engine::StepNumbers*, engine::StepControl*,
                      const engine::FlatBuffer&, engine::FlatBuffer&, void*,
                      engine::DType) override {
    throw engine::Error("steps on the CPU only");
  }
  std::vector<State> state() override { return sgd_->state(); }

 private:
  std::unique_ptr<Optimizer> sgd_;
  const milliseconds delay_;
};

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
  tools::run_inproc_ranks(
      kRanks, test_support::deadline_ms(20'000), [&](std::unique_ptr<backends::Group> group) {
        const auto control = group->make_communicator(), wire = group->make_communicator();
        tiny_training::Parts parts({.rank = group->rank(), .world_size = kRanks});
        SlowOptimizer optimizer(parts.model.parameters.values,
                                group->rank() == kSlow ? delay : milliseconds(0));
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
        if (group->rank() == 0) told = std::move(keep);
        group->leave();
        return 0;
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
  EXPECT_EQ(report.slowest_rank, kSlow);
  EXPECT_GT(report.slowest_ratio, 1.5);
  ASSERT_EQ(told.ranks.size(), static_cast<std::size_t>(kRanks));
  EXPECT_GE(told.ranks[kSlow].update, seconds);
  EXPECT_LT(told.ranks[0].own(), seconds);
  EXPECT_GT(told.ranks[0].communication, seconds / 2) << "the others wait for it";
  EXPECT_LT(told.ranks[kSlow].communication, told.ranks[0].communication);
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

engine::StepReport slow_report(const std::vector<engine::StepPhases>& ranks, double ratio) {
  return {.progress = {}, .ranks = ranks, .slowest_rank = 1, .slowest_ratio = ratio};
}

std::string notices(const std::vector<double>& ratios, double data = 0.5) {
  const std::vector<engine::StepPhases> ranks{{.forward = 0.001}, {.data = data, .forward = 0.001}};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto console = tools::make_console_observer({});
  for (const double ratio : ratios) console->on_report(slow_report(ranks, ratio));
  testing::internal::GetCapturedStdout();
  return testing::internal::GetCapturedStderr();
}

TEST(StepPhases, ARankThatStaysSlowIsNamedOnceWithWhatItSpendsItsTimeOn) {
  EXPECT_EQ(notices({2.5}), "") << "once may be noise";
  EXPECT_EQ(notices({1.2, 1.2, 1.2}), "");
  EXPECT_EQ(notices({2.5, 1.2, 2.5}), "");
  EXPECT_EQ(notices({2.5, 2.5, 2.5}, 0.0005), "") << "a step as short as this is all noise";
  EXPECT_EQ(notices({2.5, 2.5, 2.5}),
            "engine: rank 1 is slow: its own work per step is 2.50x the other ranks' median "
            "(data 500.00 ms, forward 1.00 ms, "
            "backward 0.00 ms, update 0.00 ms)\n");
}

TEST(ProgressBar, CountsWhatTheDataConsistOf) {
  io::Dataset data;
  const auto rate = [&](const io::Samples& samples) {
    data.samples = samples;
    return tools::rate_text(tools::progress_unit(data), 20);
  };
  EXPECT_EQ(rate(io::ImageSamples{}), "20 images/s");
  EXPECT_EQ(rate(io::FeatureSamples{}), "20 rows/s");
  EXPECT_EQ(rate(io::TokenSamples{.context = 64}), "1,280 tokens/s");
}

}  // namespace
