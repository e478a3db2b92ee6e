// Averages of the weights over time: what they are, on every rank, over a resumption, evaluated
// beside the model.
#include "engine/train/weight_average.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "engine/optim/moving_average.h"
#include "engine/train/saving/weights.h"
#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/interchange/numpy/npz.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"
#include "tools/run/data/saved_weights.h"

namespace {

namespace fs = std::filesystem;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;
using test_support::TemporaryDirectory;

// The average of a checkpoint, by name.
std::vector<io::NamedArray> average_of(const std::string& path) {
  std::vector<io::NamedArray> arrays = io::load_checkpoint(path).arrays;
  std::erase_if(arrays, [](const auto& a) { return a.section != io::Section::kAverage; });
  return arrays;
}

bool equal(const std::vector<io::NamedArray>& a, const std::vector<io::NamedArray>& b) {
  return std::ranges::equal(a, b, [](const io::NamedArray& x, const io::NamedArray& y) {
    return x.name == y.name && x.data == y.data;
  });
}

std::string newest(const TemporaryDirectory& folder) {
  return io::find_newest_checkpoint(folder.path().string(), nullptr);
}

// Losses of the evaluations of these weights.
std::vector<double> losses(const RankResult& result, const std::string& weights) {
  std::vector<double> all;
  for (const engine::EvalReport& report : result.evals)
    if (weights == report.weights) all.push_back(report.loss);
  return all;
}

const Options kConvnet = "model=convnet synthetic-shape=8x8x1 epochs=2";

// Plain loops beside the training, on every rank.
TEST(MovingAverage, IsAPlainLoopsOnEveryRank) {
  for (const char* dtype : {"f32", "f64"}) {
    std::vector<std::vector<double>> expected(3), found(3);
    const auto follow = [&](int rank, engine::TrainState& state) {
      std::vector<double>& average = expected[static_cast<std::size_t>(rank)];
      const engine::FlatBuffer& values = state.model.parameters.values;
      const engine::FlatBuffer& kept = *engine::moving_average(state.optimizer);
      const auto compute = [&]<class T>(T) {
        const std::span<T> now = values.span<T>(), there = kept.span<T>();
        if (average.empty()) average.assign(now.begin(), now.end());
        for (std::size_t i = 0; i < now.size(); ++i) {
          volatile T share = static_cast<T>(1 - 0.75) * (now[i] - static_cast<T>(average[i]));
          average[i] = static_cast<T>(static_cast<T>(average[i]) + share);
        }
        found[static_cast<std::size_t>(rank)].assign(there.begin(), there.end());
      };
      values.dtype() == engine::DType::kF32 ? compute(float{}) : compute(double{});
    };
    train(3, with(kConvnet, std::string("ema=0.75 dtype=") + dtype + " batch-size=13"), follow);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(found[rank], expected[rank]) << "rank " << rank << ", " << dtype;
      EXPECT_EQ(found[rank], found[0]) << "rank " << rank << ", " << dtype;
    }
  }
}

TEST(MovingAverage, ChangesNoTrainingAndIsWatchedOver) {
  const Options options = with(kConvnet, "optimizer=adamw lr=0.01");
  const auto without = train(2, options),
             beside = train(2, with(options, "ema=0.9 verify-every=1"));
  EXPECT_TRUE(same_bits(without[0], beside[0], io::Section::kParameter));
  EXPECT_EQ(without[0].losses, beside[0].losses);
  EXPECT_TRUE(beside[0].desyncs.empty());
  const auto meddled = train(2, with(options, "ema=0.9 verify-every=1 on-desync=warn"),
                             [](int rank, engine::TrainState& state) {
                               if (rank == 1 && state.progress.global_step == 3)
                                 engine::moving_average(state.optimizer)->span<float>()[0] += 1;
                             });
  ASSERT_FALSE(meddled[0].desyncs.empty());
  EXPECT_TRUE(meddled[0].desyncs[0].tensors[0].name.starts_with("average/"));
}

TEST(MovingAverage, ResumesBitByBit) {
  const TemporaryDirectory whole, parts;
  const Options options = with(kConvnet, "ema=0.9 epochs= eval-every=1s");
  const auto once = train(2, with(options, "steps=7 save-dir=" + whole.path().string()));
  std::vector<RankResult> last;
  for (const char* steps : {"1", "3", "7"})
    last = train(2, with(options, std::string("steps=") + steps +
                                      " save-dir=" + parts.path().string() + " resume=auto"));
  EXPECT_FALSE(average_of(newest(whole)).empty());
  EXPECT_TRUE(equal(average_of(newest(whole)), average_of(newest(parts))));
  EXPECT_EQ(losses(once[0], "ema").back(), losses(last[1], "ema").back());
}

TEST(MovingAverage, IsEvaluatedBesideTheModel) {
  const TemporaryDirectory folder;
  const Options options = with(kConvnet, "ema=0.5 eval-every=1e");
  const auto ranks = train(2, with(options, "save-dir=" + folder.path().string()));
  ASSERT_EQ(ranks[0].evals.size(), 4u);
  EXPECT_STREQ(ranks[0].evals[2].weights, "model");
  EXPECT_STREQ(ranks[0].evals[3].weights, "ema");
  EXPECT_FALSE(ranks[0].evals[3].best) << "the model's evaluations are compared";
  EXPECT_NE(losses(ranks[0], "model"), losses(ranks[0], "ema"));
  EXPECT_EQ(losses(ranks[0], "ema"), losses(ranks[1], "ema"));
  EXPECT_EQ(losses(ranks[0], "model"),
            losses(train(2, with(kConvnet, "eval-every=1e"))[0], "model"));

  // The names, shapes and buffers are the model's.
  const auto model = tools::load_weights(engine::AverageKind::kNone, newest(folder)),
             average = tools::load_weights(engine::AverageKind::kMoving, newest(folder));
  ASSERT_EQ(io::load_checkpoint(newest(folder)).find(io::Section::kAverage, model[0].name)->data,
            average[0].data);
  std::size_t other = 0, same = 0;
  for (const io::NamedArray& array : average) {
    const auto found = std::ranges::find_if(model, [&](const io::NamedArray& m) {
      return m.section == array.section && m.name == array.name;
    });
    ASSERT_NE(found, model.end()) << array.name;
    EXPECT_EQ(found->shape, array.shape);
    (found->data == array.data ? same : other) += 1;
  }
  EXPECT_EQ(other, 10u);
  EXPECT_EQ(same, 6u) << "running statistics and counters";
}

TEST(MovingAverage, StartsFromTheWeightsOfACheckpointWithout) {
  const TemporaryDirectory folder;
  const Options options =
      with(kConvnet, "epochs= save-dir=" + folder.path().string() + " lr=1e-300 momentum=0");
  train(1, with(options, "steps=2"));
  train(1, with(options, "steps=3 resume=auto ema=0.5"));
  const io::Checkpoint end = io::load_checkpoint(newest(folder));
  EXPECT_EQ(engine::average_kind(end), engine::AverageKind::kMoving);
  for (const io::NamedArray& array : average_of(newest(folder)))
    EXPECT_EQ(array.data, end.find(io::Section::kParameter, array.name)->data) << array.name;
}

TEST(MovingAverage, NeedsReplicasThatAreInSyncAfterEveryStep) {
  for (const char* sync : {"params", "diloco", "none"})
    EXPECT_THROW(train(2, std::string("ema=0.9 sync=") + sync), io::ConfigError) << sync;
  for (const char* decay : {"0", "1", "-0.5", "1.5", "x"})
    EXPECT_THROW(train(1, std::string("ema=") + decay), io::ConfigError) << decay;
}

const Options kFourEpochs = with(kConvnet, "epochs=4 dtype=f64");

std::vector<double> numbers(const io::NamedArray& array) {
  std::vector<double> values(array.data.size() / sizeof(double));
  std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

TEST(EpochAverage, IsTheMeanOfTheEndsOfTheLastEpochs) {
  const TemporaryDirectory folder;
  const Options options = with(kFourEpochs, "average-last=3 eval-every=1e");
  for (const char* sync : {"grad", "params"}) {
    std::vector<std::vector<io::NamedArray>> ends;
    const auto keep = [&](int rank, engine::TrainState& state) {
      if (rank == 0 && state.progress.step_in_epoch == 0)
        ends.push_back(engine::export_state(state.model, {}));
    };
    const auto ranks =
        train(3, with(options, std::string("sync=") + sync + " save-dir=" + folder / sync), keep);
    ASSERT_EQ(ends.size(), 4u);
    const std::string path = io::find_newest_checkpoint(folder / sync, nullptr);
    const std::vector<io::NamedArray> average = average_of(path);
    std::size_t parameters = 0;
    for (std::size_t k = 0; k < ends[0].size(); ++k) {
      if (ends[0][k].section != io::Section::kParameter) continue;
      const auto found = std::ranges::find(average, ends[0][k].name, &io::NamedArray::name);
      ASSERT_NE(found, average.end());
      ++parameters;
      const std::vector<double> mean = numbers(*found), a = numbers(ends[1][k]),
                                b = numbers(ends[2][k]), c = numbers(ends[3][k]);
      for (std::size_t i = 0; i < mean.size(); ++i)
        EXPECT_NEAR(mean[i], (a[i] + b[i] + c[i]) / 3, 1e-14) << found->name;
    }
    EXPECT_EQ(average.size(), parameters + 4) << "and the running statistics";

    // Evaluated once, at the end.
    ASSERT_EQ(ranks[0].evals.size(), 5u);
    EXPECT_STREQ(ranks[0].evals.back().weights, "average");
    EXPECT_EQ(losses(ranks[0], "average"), losses(ranks[2], "average"));
  }
}

TEST(EpochAverage, ChangesNoTraining) {
  const auto without = train(2, kFourEpochs),
             beside = train(2, with(kFourEpochs, "average-last=2"));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(same_bits(without[rank], beside[rank], io::Section::kParameter));
    EXPECT_TRUE(same_bits(without[rank], beside[rank], io::Section::kBuffer));
    EXPECT_EQ(without[rank].losses, beside[rank].losses);
  }
}

TEST(EpochAverage, SurvivesResumptionsBitByBit) {
  const Options options = with(kFourEpochs, "average-last=3 eval-every=1e dtype=f32 save-every=1s");
  const TemporaryDirectory whole, parts;
  const auto once = train(2, with(options, "save-dir=" + whole.path().string()));
  const Options again = with(options, "save-dir=" + parts.path().string() + " resume=auto");
  // Interrupted after the third epoch and within the fourth, by an error.
  for (const std::int64_t step : {15, 17}) {
    const auto interrupt = [&](int, engine::TrainState& state) {
      if (state.progress.global_step == step + 1) throw io::Error("interrupted");
    };
    EXPECT_ANY_THROW(train(2, again, interrupt));
  }
  const auto last = train(2, again);
  EXPECT_TRUE(equal(average_of(newest(whole)), average_of(newest(parts))));
  EXPECT_EQ(once[0].evals.back().loss, last[0].evals.back().loss);
  EXPECT_STREQ(last[0].evals.back().weights, "average");
  // Once at its end, there is nothing more to do.
  EXPECT_TRUE(train(2, again)[0].evals.empty());
  EXPECT_TRUE(equal(average_of(newest(whole)), average_of(newest(parts))));
  // A longer run has other last epochs.
  train(2, with(again, "epochs=6"));
  EXPECT_EQ(std::ranges::count(io::load_checkpoint(newest(parts)).counters,
                               std::pair<std::string, std::int64_t>{"average.epochs", 2}),
            1)
      << "the fifth and the sixth";
}

// Such a checkpoint is that of a run that failed to recompute its statistics.
TEST(EpochAverage, IsCompletedByAResumptionWithTheSameBits) {
  for (const char* length : {"epochs=4", "epochs= steps=18"}) {
    for (const char* evaluation : {"eval-every=1e", "eval-every=0"}) {
      SCOPED_TRACE(length);
      const Options options =
          with(kFourEpochs, std::string("average-last=2 ") + length, Options(evaluation));
      const TemporaryDirectory whole, parts;
      const auto once = train(2, with(options, "save-dir=" + whole.path().string()));
      io::Checkpoint end = io::load_checkpoint(newest(whole));
      std::erase_if(end.arrays, [](const io::NamedArray& array) {
        return array.section == io::Section::kAverage &&
               array.name.find("running_") < array.name.npos;
      });
      for (auto& [name, value] : end.counters)
        if (name == "average.complete") value = 0;
      io::save_checkpoint(end, parts / fs::path(newest(whole)).filename().string());
      const Options again = with(options, "save-dir=" + parts.path().string() + " resume=auto");
      const auto completed = train(2, again);
      EXPECT_TRUE(equal(average_of(newest(whole)), average_of(newest(parts))));
      EXPECT_EQ(io::load_checkpoint(newest(parts)).global_step, end.global_step);
      EXPECT_EQ(completed[0].end.global_step, once[0].end.global_step);
      EXPECT_EQ(completed[0].saved.size(), 1u);
      EXPECT_TRUE(train(2, again)[0].saved.empty()) << "nothing is left";
    }
  }
}

TEST(EpochAverage, TheLastStepIsSavedBeforeItsStatisticsAreRecomputed) {
  const TemporaryDirectory folder;
  const auto saves = [&](const Options& more) {
    return train(2, with(kFourEpochs, "average-last=2 save-every=0 save-dir=" + folder / "run",
                         more))[0]
        .saved.size();
  };
  EXPECT_EQ(saves({}), 2u) << "without and with them";
  EXPECT_EQ(saves("model=mlp save-dir=" + folder / "mlp"), 1u) << "has no statistics";
}

TEST(EpochAverage, IsCompleteAtTheEndOnly) {
  const TemporaryDirectory folder;
  train(1, with(kFourEpochs, "average-last=2 keep-last=0 save-dir=" + folder.path().string()));
  EXPECT_EQ(engine::average_kind(io::load_checkpoint(folder / "step-00000010.ckpt")),
            engine::AverageKind::kNone);
  EXPECT_THROW(tools::load_weights(engine::AverageKind::kEpochs, folder / "step-00000010.ckpt"),
               io::DataError);
  EXPECT_THROW(tools::load_weights(engine::AverageKind::kEpochs, folder / "step-00000015.ckpt"),
               io::DataError);
  EXPECT_NO_THROW(tools::load_weights(engine::AverageKind::kEpochs, folder / "step-00000020.ckpt"));
  EXPECT_THROW(tools::load_weights(engine::AverageKind::kMoving, folder / "step-00000020.ckpt"),
               io::DataError);
}

// Four steps of 6 samples in order. Those of `bad` have a sample whose outputs are not finite, or
// are left out.
std::string write_steps(const TemporaryDirectory& folder, const std::set<int>& bad, bool left_out) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (int step = 0; step < 4; ++step) {
    if (left_out && bad.contains(step)) continue;
    for (int i = 0; i < 6; ++i) {
      y.push_back(i % 3);
      for (int k = 0; k < 64; ++k)
        x.push_back(static_cast<float>((step * 41 + i * 17 + k * k) % 23) / 23);
    }
    if (bad.contains(step)) x[x.size() - 70] = 3e38F;
  }
  const auto samples = static_cast<std::int64_t>(y.size());
  for (const char* file : {"train.npz", "test.npz"})
    io::save_npz({array_fixture::array_of("x", {samples, 1, 8, 8}, x),
                  array_fixture::array_of("y", {samples}, y)},
                 folder / file);
  return "model=convnet dataset=arrays shuffle=false batch-size=6 epochs=2 average-last=1 "
         "lr=1e-300 momentum=0 data-dir=" +
         folder.path().string();
}

// The weights stay as they were, so that statistics depend on the samples alone.
TEST(EpochAverage, LeavesOutStepsThatAreNotFiniteWhereTrainingSkipsThem) {
  for (const char* more : {"", "grad-accum=2", "sync-bn=true"}) {
    for (const int world : {1, 2, 3}) {
      SCOPED_TRACE(std::string(more) + " " + std::to_string(world));
      const TemporaryDirectory bad, good, of_bad, of_good;
      const Options skip = with(Options(more), "on-nonfinite=skip");
      const auto ranks = train(
          world, with(write_steps(bad, {1, 3}, false), skip, "save-dir=" + of_bad.path().string()));
      train(world,
            with(write_steps(good, {1, 3}, true), skip, "save-dir=" + of_good.path().string()));
      EXPECT_EQ(average_of(newest(of_bad)).size(), average_of(newest(of_good)).size());
      EXPECT_TRUE(equal(average_of(newest(of_bad)), average_of(newest(of_good))));
      EXPECT_TRUE(ranks[0].not_finite.empty());
    }
  }
}

// They lie among the running statistics, and an infinite one is no bad step.
TEST(EpochAverage, KeepsConstantsOfTheModel) {
  const TemporaryDirectory files;
  std::ofstream(files / "net.toml") << R"(layer = [
    {kind = "conv2d", name = "conv", out_channels = 4},
    {kind = "batch_norm2d", name = "norm"},
    {kind = "constant", name = "low", shape = [1], initial = -inf},
    {kind = "constant", name = "tenth", shape = [1], initial = 0.1},
    {kind = "compare", name = "above", function = "greater", inputs = ["norm", "low"]},
    {kind = "where", name = "chosen", inputs = ["above", "norm", "tenth"]},
    {kind = "flatten"},
    {kind = "dense", name = "fc", out = "classes"}]
)";
  for (const char* more : {"", "on-nonfinite=skip"}) {
    for (const int world : {1, 2, 3}) {
      SCOPED_TRACE(std::string(more) + " " + std::to_string(world));
      const TemporaryDirectory folder;
      train(world, with(with(kFourEpochs, more),
                        "model=" + files / "net.toml" +
                            " average-last=2 save-dir=" + folder.path().string()));
      const io::Checkpoint end = io::load_checkpoint(newest(folder));
      int kept = 0;
      for (const io::NamedArray& array : average_of(newest(folder))) {
        if (!array.name.ends_with(".value")) continue;
        EXPECT_EQ(array.data, end.find(io::Section::kBuffer, array.name)->data) << array.name;
        ++kept;
      }
      EXPECT_EQ(kept, 2);
    }
  }
}

TEST(EpochAverage, KeepsTheModelsStatisticsIfNoStepIsFinite) {
  for (const int world : {1, 2}) {
    const TemporaryDirectory data, folder;
    train(world, with(write_steps(data, {0, 1, 2, 3}, false), "on-nonfinite=skip",
                      "save-dir=" + folder.path().string()));
    const io::Checkpoint end = io::load_checkpoint(newest(folder));
    for (const io::NamedArray& array : average_of(newest(folder)))
      if (const io::NamedArray* own = end.find(io::Section::kBuffer, array.name)) {
        EXPECT_EQ(own->data, array.data) << array.name;
      }
  }
}

TEST(EpochAverage, IsRefusedWhereItCannotBe) {
  for (const Options& more :
       {Options("average-last=5"), Options("average-last=0"), Options("average-last=1 sync=none"),
        Options("average-last=1 ema=0.9"), Options("average-last=1 reduction-order=canonical"),
        Options("average-last=1 early-stop=2 eval-every=1e")})
    EXPECT_THROW(train(1, with(kFourEpochs, more)), io::ConfigError) << more.at("average-last");
}

}  // namespace
