// Replicas that come apart: found at the next comparison with tensor, rank and step; ended, gone on
// with or repaired.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/core/error.h"
#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "models/model_catalog.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/training/session_runner.h"
#include "tools/launch/workers/worker_threads.h"

namespace {

using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

// Ranks keep a digest of each step if that costs at most 0.5 % of it: here 75 us, for about 8 KiB
// that a processor hashes in one.
void slow_down() { std::this_thread::sleep_for(std::chrono::milliseconds(15)); }

// A mantissa bit that no rounding of the next few steps can remove.
void flip_bit(const engine::TensorView& view) {
  std::uint32_t bits;
  auto* element = static_cast<float*>(view.data) + view.count() / 2;
  std::memcpy(&bits, element, sizeof bits);
  bits ^= 1U << 12;
  std::memcpy(element, &bits, sizeof bits);
}

void flip_parameter(engine::TrainState& state, const std::string& name) {
  for (const auto& entry : state.model.entries)
    if (entry.name == name) return flip_bit(state.model.view(entry));
  FAIL() << "no tensor " << name;
}

// One mantissa bit of one parameter on one rank, right after that step.
session_runner::AfterStep flip(int rank, std::int64_t step,
                               const std::string& name = "layers.0.weight") {
  return [=](int own, engine::TrainState& state) {
    if (own == rank && state.progress.global_step == step) flip_parameter(state, name);
    slow_down();
  };
}

// About 1,000 parameters, with running statistics.
const test_support::TemporaryDirectory kFolder;
std::string small_model() {
  const std::string path = kFolder / "small.toml";
  test_support::write_text(path, test_support::layers_toml(R"(
sample_shape=[8,8,1] classes=10
conv2d conv out_channels=4 kernel=3 padding=1
batch_norm2d norm
relu
max_pool2d window=4 stride=4
flatten
dense fc out=classes
)"));
  return path;
}
const Options kDesyncBase = "model=" + small_model() +
                            " synthetic-shape=8x8x1 steps=14 verify-every=5 log-every=0 "
                            "on-desync=warn";

std::vector<std::string> names(const engine::DesyncReport& report) {
  std::vector<std::string> all;
  for (const auto& tensor : report.tensors) all.push_back(tensor.name);
  return all;
}

std::string some_parameter() {
  static const std::string name = [] {
    std::string found;
    train(1, with(kDesyncBase, "steps=1 verify-every=1"), [&](int, engine::TrainState& state) {
      for (const auto& entry : state.model.entries)
        if (found.empty() && entry.kind == engine::ModelState::Kind::kParameter) found = entry.name;
    });
    return found;
  }();
  return name;
}

TEST(Desync, AFlippedBitIsFoundAtTheNextCheckWithTensorRankAndFirstBadStep) {
  const auto ranks = train(3, kDesyncBase, flip(1, 7, some_parameter()));
  for (const RankResult& rank : ranks) {
    ASSERT_GE(rank.desyncs.size(), 1u);
    const engine::DesyncReport& report = rank.desyncs.front();
    EXPECT_EQ(report.step, 10);
    EXPECT_EQ(names(report), std::vector<std::string>{some_parameter()});
    EXPECT_EQ(report.ranks, std::vector<int>{1});
    EXPECT_FALSE(report.tie);
    EXPECT_FALSE(report.repaired);
    EXPECT_EQ(report.last_good, 7);
    EXPECT_EQ(report.first_bad, 8);
    EXPECT_EQ(rank.desyncs.back().step, 14) << "the end of the run is compared, too";
    EXPECT_EQ(rank.desyncs.back().first_bad, 8) << "still the same desync";
  }
  EXPECT_CONTAINS(ranks[0].coverage, "compared 4 times, different in 2");
}

TEST(Desync, WithoutAFaultReplicasAreEqual) {
  for (const Options& more :
       {Options{}, Options("optimizer=adamw lr=0.001"), Options("buffers=average"),
        Options("buffers=rank0"), Options("batch-size=13 clip-grad=0.1"), Options("sync-bn=true"),
        Options("dtype=f64 delay-allreduce=true")}) {
    const auto ranks = train(3, with(kDesyncBase, with(more, "on-desync=abort")));
    EXPECT_CONTAINS(ranks[0].coverage, "always equal");
  }
}

TEST(Desync, AbortNamesAllInOneLine) {
  const std::string text = test_support::error_of<engine::DesyncError>(
      [&] { train(3, with(kDesyncBase, "on-desync=abort"), flip(2, 6, some_parameter())); });
  for (const std::string& part :
       {std::string("desync after step 10"), some_parameter() + " on rank 2",
        std::string("majority of 3 ranks"), std::string("first bad step 7 (equal after step 6)")})
    EXPECT_CONTAINS(text, part);
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST(Desync, TwoRanksAreATieAndItSaysSo) {
  const auto ranks = train(2, kDesyncBase, flip(0, 3, some_parameter()));
  ASSERT_GE(ranks[1].desyncs.size(), 1u);
  const engine::DesyncReport& report = ranks[1].desyncs.front();
  EXPECT_TRUE(report.tie);
  EXPECT_EQ(report.ranks, std::vector<int>{1}) << "rank 0 is what others are compared with";
  EXPECT_EQ(report.first_bad, 4);
  const std::string text = to_string(report, 2);
  EXPECT_VALUES(text, "2 ranks tie rank 0");
}

TEST(Desync, OptimizerStatesAreComparedToo) {
  const auto ranks = train(3, kDesyncBase, [](int rank, engine::TrainState& state) {
    // A single bit may be rounded away before the comparison.
    if (rank == 0 && state.progress.global_step == 2)
      *static_cast<float*>(state.optimizer.state()[0].buffer->view(0).data) += 1;
    slow_down();
  });
  ASSERT_GE(ranks[0].desyncs.size(), 1u);
  const std::vector<std::string> found = names(ranks[0].desyncs.front());
  EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                          [](const auto& name) { return name.starts_with("momentum/"); }));
  EXPECT_EQ(ranks[0].desyncs.front().ranks, std::vector<int>{0});
}

TEST(Desync, SynchronisedRunningStatisticsAreComparedInEveryStepAndOthersAfterAnAveraging) {
  const auto meddle = [](int rank, engine::TrainState& state) {
    if (rank == 1 && state.progress.global_step == 2)
      for (const auto& entry : state.model.entries)
        if (entry.kind == engine::ModelState::Kind::kRunning) flip_bit(state.model.view(entry));
    slow_down();
  };
  const auto ranks = train(3, with(kDesyncBase, "sync-bn=true"), meddle);
  ASSERT_GE(ranks[0].desyncs.size(), 1u);
  const engine::DesyncReport& report = ranks[0].desyncs.front();
  EXPECT_EQ(report.ranks, std::vector<int>{1});
  EXPECT_GE(report.tensors.size(), 1u);
  for (const std::string& name : names(report)) EXPECT_CONTAINS(name, ".running_");
  EXPECT_TRUE(train(3, kDesyncBase, meddle)[0].desyncs.empty()) << "each rank has its own";
  EXPECT_TRUE(train(3, with(kDesyncBase, "buffers=average"), meddle)[0].desyncs.empty())
      << "averaged before they are compared";
}

TEST(Desync, RepairGivesTheMinorityTheMajoritysTensorsAndTheRunGoesOn) {
  const Options options = with(kDesyncBase, "on-desync=repair steps=22");
  const auto meddle = [](int rank, engine::TrainState& state) {
    // Two tensors on two ranks, and later once more.
    if (rank == 1 && state.progress.global_step == 2) flip_parameter(state, some_parameter());
    // By much, since a momentum decays.
    if (rank == 0 && state.progress.global_step == 3)
      *state.optimizer.state()[0].buffer->view(1).as<float>() += 0.25f;
    if (rank == 2 && state.progress.global_step == 12) flip_parameter(state, some_parameter());
    slow_down();
  };
  const auto ranks = train(3, options, meddle);
  for (const RankResult& rank : ranks) {
    ASSERT_EQ(rank.desyncs.size(), 2u);
    EXPECT_EQ(rank.desyncs[0].step, 5);
    EXPECT_EQ(rank.desyncs[0].ranks, (std::vector<int>{0, 1}));
    EXPECT_TRUE(rank.desyncs[0].repaired);
    EXPECT_EQ(rank.desyncs[0].first_bad, 3);
    EXPECT_EQ(rank.desyncs[1].step, 15);
    EXPECT_EQ(rank.desyncs[1].ranks, std::vector<int>{2});
    EXPECT_EQ(rank.desyncs[1].first_bad, 13);
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
  }
  EXPECT_CONTAINS(ranks[0].coverage, "different in 2");
}

TEST(Desync, ATieIsRepairedFromRank0) {
  const auto clean = train(2, with(kDesyncBase, "steps=5"));
  const auto ranks =
      train(2, with(kDesyncBase, "on-desync=repair steps=5"), flip(1, 4, some_parameter()));
  ASSERT_EQ(ranks[0].desyncs.size(), 1u);
  EXPECT_CONTAINS(to_string(ranks[0].desyncs[0], 2), "repaired from rank 0");
  EXPECT_TRUE(same_bits(ranks[0], ranks[1], io::Section::kParameter));
  EXPECT_TRUE(same_bits(clean[0], clean[1], io::Section::kParameter));
}

TEST(Desync, ARepairedRunResumesBitByBit) {
  const test_support::TemporaryDirectory whole, parts;
  const Options options = with(kDesyncBase, "on-desync=repair save-every=0");
  const auto fault = flip(1, 3, some_parameter());
  const auto once = train(3, with(options, "steps=12 save-dir=" + whole.path().string()), fault);
  train(3, with(options, "steps=8 save-dir=" + parts.path().string()), fault);
  const auto resumed =
      train(3, with(options, "steps=12 save-dir=" + parts.path().string() + " resume=auto"));
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(resumed[r].desyncs.empty());
    EXPECT_TRUE(same_bits(once[r], resumed[r], io::Section::kParameter)) << r;
    EXPECT_TRUE(same_bits(once[0], resumed[r], io::Section::kParameter)) << r;
  }
}

TEST(Desync, ParameterAveragingIsComparedRightAfterAnAveragingOnly) {
  // Averagings at 3, 6, 9, 12 and at the ends of epochs (5, 10, 14); checks fall due at 4 and wait
  // for the next of these.
  const Options options =
      with(kDesyncBase, "sync=params sync-every=3 verify-every=4 on-desync=abort");
  const auto ranks = train(3, options);
  EXPECT_CONTAINS(ranks[0].coverage, "always equal");
  EXPECT_EQ(ranks[0].coverage.find("compared 1 time"), std::string::npos) << ranks[0].coverage;
}

TEST(Desync, OneRankHasNothingToCompareAndReplicasThatNeverMeetAreRefused) {
  EXPECT_EQ(train(1, kDesyncBase)[0].coverage.find("compared"), std::string::npos);
  EXPECT_THROW(train(2, with(kDesyncBase, "sync=none")), io::ConfigError);
}

TEST(Desync, OnDesyncNeedsVerifyEvery) {
  EXPECT_THROW(session_runner::make_config("on-desync=repair"), io::ConfigError);
  EXPECT_THROW(session_runner::make_config("verify-every=0"), io::ConfigError);
  EXPECT_EQ(session_runner::make_config("verify-every=7").on_desync, engine::OnDesync::kAbort);
}

// Every rank's message when rank 2 of 3 builds another model.
std::vector<std::string> refusals(const engine::Shape& sample, engine::DType dtype) {
  std::vector<std::string> texts(3);
  tools::run_inproc_ranks(
      3, test_support::deadline_ms(20'000), [&](std::unique_ptr<backends::Group> group) {
        const auto control = group->make_communicator();
        const bool odd = group->rank() == 2;
        const engine::Graph graph = models::build_model(
            "mlp", {.sample_shape = odd ? sample : engine::Shape{6, 6, 1}, .classes = 10});
        auto state = engine::ModelState::allocate(graph, odd ? dtype : engine::DType::kF32);
        try {
          engine::broadcast_state(*control, state);
        } catch (const engine::DesyncError& error) {
          texts[static_cast<std::size_t>(group->rank())] = error.what();
        }
        group->leave();
        return 0;
      });
  return texts;
}

TEST(Desync, ModelsThatDifferAreNamedBeforeTheFirstStepWithTheTensorAndBothShapes) {
  for (const std::string& text : refusals({7, 7, 1}, engine::DType::kF32))
    EXPECT_VALUES(text,
                  "rank 2 rank 0's: layers.0.weight [512, 49] rank 0 layers.0.weight [512, 36]");
  for (const std::string& text : refusals({6, 6, 1}, engine::DType::kF64))
    EXPECT_VALUES(text, "rank 2 rank 0's: f64 rank 0 f32");
  for (const std::string& text : refusals({6, 6, 1}, engine::DType::kF32)) EXPECT_EQ(text, "");
}

TEST(DesyncReport, NamesTheFirstTensorsAndARangeOfSteps) {
  engine::DesyncReport report{.step = 20, .last_good = 12, .first_bad = 16, .compared = 40};
  for (int i = 0; i < 8; ++i)
    report.tensors.push_back({.name = "t" + std::to_string(i), .ranks = {1, 3}});
  EXPECT_VALUES(to_string(report, 5),
                "step 20: 8 of 40 tensors t0 1, 3, t1 1, 3, t2 1, 3, t3 1, 3, t4 1, 3, 3 more; "
                "majority 5 ranks; 13 16 step 12");
  EXPECT_LACKS(to_string(report, 5), "t5");
  report.last_good = 20;
  EXPECT_CONTAINS(to_string(report, 5), "already so before the first step of this run");
}

}  // namespace
