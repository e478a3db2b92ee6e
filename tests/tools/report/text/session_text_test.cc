// The lines that a run starts with, made from numbers.
#include "tools/report/text/session_text.h"

#include <gtest/gtest.h>

#include "tests/support/expect_contains.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/text/stop_report.h"

namespace {

using tools::LengthFacts;
using tools::SessionFacts;
using tools::StartFacts;

SessionFacts small_run() {
  SessionFacts facts;
  facts.model = {.name = "mlp", .parameters = 29034, .tensors = 4};
  facts.data = {
      .name = "mnist", .train = 60000, .test = 10000, .digest = {}, .columns = {}, .warnings = {}};
  facts.batch = {.global = 64, .even = true, .shares = {32, 32}, .steps_per_epoch = 938};
  facts.ranks = {.count = 2,
                 .computes = "1 thread on cpu (avx2)",
                 .bound_to = {},
                 .backend = "shm",
                 .backend_reason = "auto: one host",
                 .processors = {},
                 .translation = {}};
  facts.averaging = {.text = "grad overlapped"};
  facts.update = {.optimizer = "sgd",
                  .details = {},
                  .lr = 0.2,
                  .lr_arithmetic = " (0.1 x 2 ranks)",
                  .schedule = engine::LearningRate::Schedule::kCosine};
  facts.length = {.total_steps = 1876, .epochs = 2, .asked = 2};
  facts.seed = 7;
  return facts;
}

TEST(SessionText, TheStartLineHasEveryChoice) {
  SessionFacts facts = small_run();
  EXPECT_EQ(tools::start_line(facts, "0.1.0"),
            "engine 0.1.0: mlp (29,034 parameters, f32) on mnist (60,000 train, 10,000 test) | "
            "2 ranks x 1 thread on cpu (avx2) | backend shm (auto: one host) | "
            "sync grad overlapped | global batch 64 = 2 ranks x 1 device x 32 x 1 | 938 steps an "
            "epoch, 1876 in all | sgd lr 0.2 (0.1 x 2 ranks) cosine | seed 7");
  facts.ranks.bound_to = "cores 0-3";
  facts.averaging.canonical_shards = 8;
  facts.model.synchronized_layers = 1;
  facts.batch.steps_per_epoch = 1;
  facts.update.details = "muon for 3 of 5";
  EXPECT_EQ(tools::start_line(facts, "0.1.0"),
            "engine 0.1.0: mlp (29,034 parameters, f32) on mnist (60,000 train, 10,000 test) | "
            "2 ranks x 1 thread on cpu (avx2) | rank 0 bound to cores 0-3 | backend shm (auto: one "
            "host) | sync grad overlapped (8 shards) | sync-bn of 1 layer | "
            "global batch 64 = 2 ranks x 1 device x 32 x 1 | 1 step an epoch, 1876 in all | sgd lr "
            "0.2 (0.1 x 2 ranks) cosine (muon for 3 of 5) | seed 7");
}

TEST(SessionText, AStopNamesTheCommandThatContinuesTheJob) {
  tools::LastSave last;
  engine::TrainResult result;
  result.signal = 2;
  result.progress.global_step = 7;
  last.on_save(result.progress, "runs/a/step-00000007.ckpt");
  const std::string head =
      "stopped by signal 2 (Interrupt) after step 7: saved runs/a/step-00000007.ckpt; to "
      "continue: ";
  EXPECT_EQ(tools::stop_text(result, false, last), head + "engine train --resume runs/a");
  const std::string same = "command --resume auto";
  EXPECT_EQ(tools::stop_text(result, false, last, same), head + "on each rank " + same);
}

using Lines = std::vector<std::string>;

TEST(SessionText, AMemoryLimitIsReportedWithWhatItCosts) {
  SessionFacts facts = small_run();
  EXPECT_EQ(tools::detail_lines(facts), Lines{});
  constexpr std::uint64_t kMib = 1 << 20;
  facts.memory = {.limit = 4096 * kMib,
                  .requested = 4096 * kMib,
                  .total = 2000 * kMib + 1,
                  .parameters = 100 * kMib,
                  .gradients = 100 * kMib,
                  .optimizer = 200 * kMib,
                  .activations = 1500 * kMib,
                  .kept = 900 * kMib,
                  .layers = 40,
                  .largest_batch = 9};
  EXPECT_EQ(
      tools::detail_lines(facts),
      Lines{"Memory: 1.95 GiB of 4 GiB: parameters 100 MiB, gradients 100 MiB, optimizer 200 "
            "MiB, activations 1.46 GiB (900 MiB kept for backward); nothing is recomputed; at "
            "most --batch-size-per-device 9 fits"});
  const auto line_of = [&](std::uint64_t requested) {
    facts.memory->requested = requested;
    return tools::detail_lines(facts).at(0);
  };
  EXPECT_VALUES(line_of(100 * 1024 * kMib), "1.95 GiB 4 GiB free --memory 100 GiB");
  EXPECT_VALUES(line_of(3686 * kMib), "1.95 GiB 4 GiB free 3.6 GiB");
  facts.memory->requested = facts.memory->limit;
  facts.memory->recomputed = 700 * kMib;
  facts.memory->segments = 1;
  facts.memory->recomputed_layers = 12;
  facts.memory->added_flops = 0.1234;
  EXPECT_NE(
      tools::detail_lines(facts).at(0).find("; recomputed: 700 MiB in 1 segment (12 of 40 layers), "
                                            "12.3 % more operations; at most "),
      std::string::npos);
}

TEST(SessionText, UnequalSharesAreListedUpToFour) {
  SessionFacts facts = small_run();
  facts.ranks.full_count = 4;
  facts.batch = {.global = 7, .even = false, .micro_batches = 2, .shares = {4, 3}};
  EXPECT_EQ(tools::scale_text(facts),
            "global batch 7 = 4 + 3 in 2 micro-batches, lr 0.2 for 2 of 4 ranks");
  facts.batch = {.global = 7, .even = false, .shares = {2, 2, 1, 1, 1}};
  facts.ranks.count = 5;
  EXPECT_VALUES(tools::scale_text(facts), "7 = 2 + 2 + 1 + 1 + 1, lr 0.2 5 4");
  facts.batch.shares.push_back(0);
  facts.ranks.count = 6;
  EXPECT_VALUES(tools::scale_text(facts), "7 = 2 + 2 + 1 + 1 + ..., lr 0.2 6 4");
  facts.ranks.full_count = 0;
  EXPECT_EQ(tools::scale_text(facts), "") << "the batch does not scale with the ranks";
}

TEST(SessionText, WhereTheStateCameFrom) {
  SessionFacts facts = small_run();
  const auto text = [&](const StartFacts& start) {
    facts.start = start;
    return tools::state_text(facts);
  };
  using Source = StartFacts::Source;
  EXPECT_EQ(text({.source = Source::kSeed}), "fresh weights from seed 7");
  EXPECT_EQ(text({.source = Source::kCheckpoint, .path = "run/a.ckpt", .step = 400}),
            "resumed run/a.ckpt at step 400");
  EXPECT_EQ(text({.source = Source::kMemory, .step = 12}), "the state of step 12");
  EXPECT_TRUE(facts.is_carried_over());
  EXPECT_EQ(text({.source = Source::kWeights, .path = "w.npz"}), "weights from w.npz");
  EXPECT_EQ(text({.source = Source::kWeights, .path = "w.npz", .left_out = {"a", "b"}}),
            "weights from w.npz, but for a, b");
}

TEST(SessionText, PartsWithNothingToSayHaveNoLine) {
  const SessionFacts facts = small_run();
  EXPECT_EQ(tools::detail_lines(facts), Lines{});
  EXPECT_TRUE(tools::averaging_lines(facts).empty());
  EXPECT_TRUE(tools::data_warnings(facts).empty());
}

TEST(SessionText, Details) {
  SessionFacts facts = small_run();
  facts.data.columns = "a.csv: 3 numbers";
  facts.model.frozen_tensors = 2;
  facts.model.frozen_parameters = 25000;
  EXPECT_VALUES(tools::frozen_line(facts), "Frozen: 2 4 25,000 29,034");
  facts.model.frozen_layers = 1;
  facts.data.partition = io::PartitionCheck{.epochs = 2, .left_out = 1, .repeated = 0};
  facts.data.shards = {{0, 30}, {30, 61}};
  EXPECT_LINES(tools::detail_lines(facts), "Columns a.csv: 3", "Frozen: 2 4 25,000 29,034 1 layer",
               "Sampler: 60,000 one 2 1 2; 1", "id: 0, world: 2, start: 0, end: 30",
               "id: 1, world: 2, start: 30, end: 61");
  facts.batch.global = 60001;
  EXPECT_LINES(tools::data_warnings(facts), "batch 60001 60000");
}

TEST(SessionText, ACompleteRunSaysWhatWouldGoOn) {
  SessionFacts facts = small_run();
  EXPECT_FALSE(facts.is_complete());
  facts.length.left = LengthFacts::Left::kEvaluation;
  EXPECT_FALSE(facts.is_complete());
  facts.length.left = LengthFacts::Left::kNothing;
  facts.length.done = 2;
  EXPECT_TRUE(facts.is_complete());
  EXPECT_EQ(tools::completion_text(facts),
            "nothing left to do: epoch 2 of 2 is done; --epochs 4 continues it");
  facts.length.by_steps = true;
  facts.length.done = 9;
  facts.length.asked = 5;
  EXPECT_EQ(tools::completion_text(facts),
            "nothing left to do: step 9 is done, --steps is 5; --steps 18 continues it");
  facts.length.left = LengthFacts::Left::kNothingForPatience;
  facts.length.done_steps = 30;
  facts.length.why_stopped = "no improvement of loss in 3 evaluations";
  facts.length.patience = 3;
  EXPECT_TRUE(facts.is_complete());
  EXPECT_VALUES(tools::completion_text(facts),
                "30 " + facts.length.why_stopped + " --early-stop 6");
}

// Reports after 2, 4, 6 ... steps with these ratios.
std::string slow_rank_notices(const std::vector<double>& ratios, double data = 0.5,
                              bool equal_work = true) {
  const std::vector<engine::StepPhases> ranks{{.forward = 0.001}, {.data = data, .forward = 0.001}};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto console = tools::make_console_observer({.equal_work = equal_work});
  std::int64_t step = 0;
  for (const double ratio : ratios)
    console->on_report({.progress = {.global_step = step += 2},
                        .ranks = ranks,
                        .slowest_rank = 1,
                        .slowest_ratio = ratio});
  testing::internal::GetCapturedStdout();
  return testing::internal::GetCapturedStderr();
}

TEST(SlowRank, ARankThatStaysSlowIsNamedOnceWithWhatItSpendsItsTimeOn) {
  EXPECT_EQ(slow_rank_notices({2.5}), "") << "once may be noise";
  EXPECT_EQ(slow_rank_notices({1.2, 1.2, 1.2}), "");
  EXPECT_EQ(slow_rank_notices({2.5, 1.2, 2.5}), "");
  EXPECT_EQ(slow_rank_notices({2.5, 2.5, 2.5}, 0.0005), "")
      << "a step as short as this is all noise";
  EXPECT_EQ(slow_rank_notices({2.5, 2.5, 2.5}, 0.1), "") << "it has not cost a second";
  EXPECT_EQ(slow_rank_notices({2.5, 2.5, 2.5, 2.5, 2.5, 2.5}, 0.5, /*equal_work=*/false), "");
  const std::string notice = slow_rank_notices({2.5, 2.5, 2.5});
  EXPECT_VALUES(notice, "rank 1 2.50x 500.00 ms, 1.00 ms, 0.00 ms, 0.00 ms");
  EXPECT_EQ(notice.find('\n'), notice.size() - 1) << notice;
}

TEST(ProgressBar, CountsWhatTheDataConsistOf) {
  io::Dataset data;
  const auto rate = [&](const io::Samples& samples) {
    data.samples = samples;
    return tools::rate_text(tools::progress_unit(data), 20);
  };
  EXPECT_EQ(rate(io::ImageSamples{}), "20 images/s");
  EXPECT_EQ(rate(io::FeatureSamples{}), "20 rows/s");
  EXPECT_EQ(rate(io::ArraySamples{}), "20 samples/s");
  EXPECT_EQ(rate(io::TokenSamples{.context = 64}), "1,280 tokens/s");
}

}  // namespace
