// Runs that diverge, and models that did, in the real program: exit codes, one line, good
// checkpoints left alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_names.h"
#include "io/interchange/numpy/npz.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_words;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

CommandResult train_step_by_step(std::vector<std::string> more) {
  more.insert(more.begin(), {"--log-every", "1"});
  return engine(program::quick_train(more));
}

std::string with_step(const TemporaryDirectory& folder, int step) {
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    if (entry.path().filename() == io::checkpoint_file_name(step)) return entry.path().string();
  return "";
}

TEST(Diverged, EndsWith79AndOneLineAndSavesNothing) {
  const TemporaryDirectory folder;
  const CommandResult result =
      train_step_by_step({"--lr", "1e6", "--save-dir", folder / "run", "--save-every", "0",
                          "--metrics", folder / "m.jsonl"});
  EXPECT_EQ(result.exit_code, 79) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  expect_words(result.err, {"engine: error: the loss was finite at step 2, not finite at step 3; ",
                            "no checkpoint", "--lr", "--clip-grad"});
  EXPECT_LACKS(result.out, "completed");
  EXPECT_LACKS(result.out, "Test after");
  EXPECT_EQ(with_step(folder, 5), "");
  expect_words(test_support::read_text(folder / "m.jsonl"),
               {"\"event\":\"nonfinite\",\"step\":3,\"epoch\":0,\"time\":",
                "\"last_good\":2,\"what\":\"loss\",\"action\":\"abort\""});
}

TEST(Diverged, EndsAllRanksWith79) {
  const CommandResult result = train_step_by_step({"--lr", "1e6", "--spawn", "2"});
  EXPECT_EQ(result.exit_code, 79) << result.err;
  expect_words(result.err, {"engine: error: rank ", "not finite at step 3"});
}

TEST(Diverged, AResumedRunLeavesGoodCheckpoints) {
  const TemporaryDirectory folder;
  const std::vector<std::string> keep{"--save-dir", folder / "run", "--save-every",
                                      "1s",         "--keep-last",  "2"};
  const auto with = [&keep](std::vector<std::string> more) {
    more.insert(more.end(), keep.begin(), keep.end());
    return train_step_by_step(more);
  };
  expect_success(with(argv("--epochs 1")));
  const CommandResult diverged = with(argv("--epochs 5 --resume auto --lr 1e6 --momentum 0"));
  EXPECT_EQ(diverged.exit_code, 79) << diverged.err;
  const std::string before = "last good checkpoint: ";
  const std::size_t at = diverged.err.find(before);
  ASSERT_NE(at, std::string::npos) << diverged.err;
  const std::size_t begin = at + before.size();
  const std::string good = diverged.err.substr(begin, diverged.err.find(';', begin) - begin);
  expect_success(call("eval", good, "--threads 1"));
}

TEST(Diverged, GoesOnWithOneWarningWhereToldTo) {
  const TemporaryDirectory folder;
  const CommandResult result = expect_success(
      train_step_by_step({"--lr", "1e6", "--on-nonfinite", "continue", "--save-dir", folder / "run",
                          "--save-every", "1s", "--keep-last", "1"}));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  expect_words(result.err, {"engine: warning: the loss was finite at step 2, not finite at step 3",
                            "the run continues"});
  EXPECT_NE(with_step(folder, 2), "") << "the last good one";

  const std::string bad = with_step(folder, 5);
  ASSERT_NE(bad, "");
  const CommandResult eval = call("eval", bad, "--threads 1");
  EXPECT_EQ(eval.exit_code, 65) << eval.err;
  expect_words(eval.err, {bad, "'layers.0.weight' is not finite"});

  const CommandResult same = expect_success(engine({"verify", bad, bad}));
  expect_words(same.err, {"verify: 0 of 6 tensors differ\n",
                          "verify: note: ", "hold NaN or infinity: layers.0.weight"});
  const CommandResult apart = engine({"verify", with_step(folder, 2), bad});
  EXPECT_EQ(apart.exit_code, 1) << apart.err;
  expect_words(apart.err, {"layers.0.weight (" + bad + ")"});
  expect_words(call("verify --format json", bad, bad).out, {"\"not_finite\":[\"layers.0.weight\""});
  EXPECT_EQ(call("verify -q", bad, bad).err, "");
}

// Parameters are finite, and the model's output for the test samples is not.
class EvaluationNotFinite : public testing::Test {
 protected:
  EvaluationNotFinite() {
    const auto save = [&](const char* name, float value) {
      std::vector<float> x(64, value);
      std::vector<std::int64_t> y(16, 0);
      for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -value / 2;
      for (std::size_t i = 0; i < y.size(); i += 2) y[i] = 1;
      io::save_npz(
          {array_fixture::array_of("x", {16, 4}, x), array_fixture::array_of("y", {16}, y)},
          folder_ / name);
    };
    save("train.npz", 1);
    save("test.npz", 3e38F);
  }
  CommandResult train(const std::vector<std::string>& more) const {
    return engine(argv("train --model mlp --dataset arrays --epochs 2 --batch-size 8 --threads 1",
                       "--data-dir", folder_ / ".", "--save-dir", folder_ / "run", "--save-every",
                       "0", "--metrics", folder_ / "m.jsonl", more));
  }
  std::string metrics() const { return test_support::read_text(folder_ / "m.jsonl"); }

  const TemporaryDirectory folder_;
};

TEST_F(EvaluationNotFinite, EndsWith79) {
  for (const char* ranks : {"1", "2"}) {
    const CommandResult result = train({"--spawn", ranks});
    EXPECT_EQ(result.exit_code, 79) << result.err;
    expect_words(result.err,
                 {"the test loss is not finite at step 2 (the loss was finite at step 2); there is "
                  "no checkpoint"});
    EXPECT_LACKS(result.out, "Test after");
    EXPECT_LACKS(result.out, "Best so far");
    EXPECT_EQ(with_step(folder_, 4), "");
    expect_words(metrics(), {"\"what\":\"test loss\",\"action\":\"abort\""});
    fs::remove_all(folder_ / "run");
    fs::remove(folder_ / "m.jsonl");
  }
}

TEST_F(EvaluationNotFinite, IsNeverTheBest) {
  for (const std::string action : {"continue", "skip"}) {
    const CommandResult result = expect_success(train({"--on-nonfinite", action}));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    expect_words(result.err, {"engine: warning: the test loss is not finite at step 2",
                              "; the run continues (--on-nonfinite " + action + ")"});
    expect_words(result.out,
                 {"Test after step 2: loss nan (16 samples)\n", "Test after step 4: loss nan ("});
    EXPECT_LACKS(result.out, "Best so far");
    expect_words(metrics(), {"\"loss\":null,\"accuracy\":null"});
    EXPECT_LACKS(metrics(), "\"best\":true");
    const CommandResult eval = call("eval", folder_ / "run", "--threads 1");
    program::expect_error(eval, 65, "output arrays not finite NaN infinity");
    EXPECT_LACKS(eval.out, "accuracy");
    expect_success(call("eval", folder_ / "run", "--split train --threads 1"));
    fs::remove_all(folder_ / "run");
    fs::remove(folder_ / "m.jsonl");
  }
}

// The second of four steps has a sample whose outputs are not finite.
std::vector<std::string> train_average(const TemporaryDirectory& folder,
                                       const std::vector<std::string>& more) {
  std::vector<float> x(24 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 23) / 23;
  std::vector<std::int64_t> y(24);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int64_t>(i % 3);
  const auto save = [&](const char* name) {
    io::save_npz(
        {array_fixture::array_of("x", {24, 1, 8, 8}, x), array_fixture::array_of("y", {24}, y)},
        folder / name);
  };
  save("test.npz");
  x[8 * 64] = 3e38F;
  save("train.npz");
  return argv("train --model convnet --dataset arrays --epochs 2 --batch-size 6 --threads 1",
              "--average-last 1 --no-shuffle --data-dir", folder / ".", "--save-dir",
              folder / "run", "--eval-every 0", more);
}

TEST(AverageOfEpochs, SaysWhichStepsItIsWithout) {
  for (const char* ranks : {"1", "2"}) {
    const TemporaryDirectory folder;
    const CommandResult result =
        expect_success(engine(train_average(folder, {"--on-nonfinite", "skip", "--spawn", ranks})));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    expect_words(result.err, {"engine: warning: ", " 1 of 4 steps,"});
    expect_success(call("eval", folder / "run", "--weights average --threads 1"));
  }
}

TEST(AverageOfEpochs, SaysThatItIsNotFinite) {
  const TemporaryDirectory folder;
  const CommandResult result =
      expect_success(engine(train_average(folder, {"--on-nonfinite", "continue"})));
  expect_words(result.err, {"engine: warning: ", ".running_", "--on-nonfinite skip"});
  const std::string words = "not finite";
  program::expect_error(call("eval", folder / "run", "--weights average --threads 1"), 65, words);
  program::expect_error(
      call("export", folder / "run", "--weights average -o", folder / "average.onnx"), 65, words);
}

TEST(Diverged, WhereStepsAreSkippedTheyAreCounted) {
  const TemporaryDirectory folder;
  // Two updates make the parameters so large that every loss after them is not finite.
  const CommandResult result = expect_success(train_step_by_step(
      {"--lr", "1e6", "--on-nonfinite", "skip", "--spawn", "2", "--metrics", folder / "m.jsonl"}));
  expect_words(result.out, {"Skipped steps, not finite: 3"});
  expect_words(test_support::read_text(folder / "m.jsonl"), {"\"skipped_steps\":3}"});
}

}  // namespace
