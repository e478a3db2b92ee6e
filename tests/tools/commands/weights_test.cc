// --weights of eval, export and sample: an average of a snapshot in the model's place.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using test_support::CommandResult;
using test_support::engine;
using test_support::TemporaryDirectory;

CommandResult train_convnet(const std::string& folder, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{
      "train", "--model",          "convnet", "--dataset",         "synthetic", "--batch-size",
      "12",    "--spawn",          "2",       "--threads",         "1",         "--log-every",
      "0",     "--synthetic-size", "60",      "--synthetic-shape", "8x8x1",     "--save-dir",
      folder};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return engine(arguments);
}

// From `before` to the end of its line.
std::string rest_of_line(const std::string& text, const std::string& before) {
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return "no '" + before + "'";
  return text.substr(at + before.size(), text.find('\n', at) - at - before.size());
}

TEST(Weights, AMovingAverageIsEvaluatedAndExported) {
  const TemporaryDirectory folder;
  const CommandResult trained =
      train_convnet(folder / "run", {"--ema", "0.75", "--metrics", folder / "m.jsonl"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string checkpoint = folder / "run/step-00000005.ckpt",
                    model = rest_of_line(trained.out, "Test after step 5: "),
                    average = rest_of_line(trained.out, "Test after step 5 (ema): ");
  EXPECT_NE(model, average) << trained.out;
  EXPECT_NE(test_support::read_text(folder / "m.jsonl").find(",\"weights\":\"ema\"}"),
            std::string::npos);
  EXPECT_EQ(rest_of_line(engine({"eval", checkpoint}).out, "(test): "), model);
  const CommandResult eval = engine({"eval", checkpoint, "--weights", "ema"});
  EXPECT_EQ(rest_of_line(eval.out, checkpoint + " ema on synthetic (test): "), average) << eval.out;
  EXPECT_NE(engine({"eval", checkpoint, "--weights", "ema", "--format", "json"})
                .out.find("\"weights\":\"ema\""),
            std::string::npos);

  const std::string file = folder / "ema.safetensors";
  ASSERT_EQ(engine({"export", checkpoint, "-o", file, "--weights", "ema"}).exit_code, 0);
  const CommandResult exported =
      engine({"eval", file, "--model", "convnet", "--dataset", "synthetic", "--synthetic-size",
              "60", "--synthetic-shape", "8x8x1"});
  EXPECT_EQ(rest_of_line(exported.out, "(test): "), average) << exported.err;
}

TEST(Weights, AnAverageOfEpochsIsEvaluatedWithItsOwnStatistics) {
  const TemporaryDirectory folder;
  const CommandResult trained =
      train_convnet(folder / "run", {"--epochs", "3", "--average-last", "2", "--lr", "0.1"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string checkpoint = folder / "run/step-00000015.ckpt",
                    average = rest_of_line(trained.out, "Test after step 15 (average): ");
  EXPECT_EQ(trained.out.find("Test after step 10 (average)"), std::string::npos) << trained.out;
  const CommandResult eval = engine({"eval", checkpoint, "--weights", "average"});
  EXPECT_EQ(rest_of_line(eval.out, "(test): "), average) << eval.out << eval.err;
  expect_error(engine({"eval", checkpoint, "--weights", "ema"}), 65,
               " does not have a moving average of the weights (train --ema); it has an average");
  expect_error(engine({"eval", folder / "run/step-00000010.ckpt", "--weights", "average"}), 65,
               "not complete before the run's end");
}

TEST(Weights, WithoutAnAverageThereIsNone) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train_convnet(folder / "run", {}).exit_code, 0);
  const std::string checkpoint = folder / "run/step-00000005.ckpt", file = folder / "m.npz";
  const std::string words =
      checkpoint + " does not have a moving average of the weights (train --ema)";
  expect_error(engine({"eval", checkpoint, "--weights", "ema"}), 65, words);
  expect_error(engine({"export", checkpoint, "-o", file, "--weights", "ema"}), 65, words);
  ASSERT_EQ(engine({"export", checkpoint, "-o", file}).exit_code, 0);
  EXPECT_EQ(engine({"export", file, "-o", folder / "n.npz", "--weights", "ema"}).exit_code, 65);
  EXPECT_EQ(engine({"eval", checkpoint, "--weights", "best"}).exit_code, 2);
}

TEST(Weights, TextIsSampledFromAnAverage) {
  const TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "abcdefgh ";
  test_support::write_text(folder / "alphabet.txt", text);
  const CommandResult trained = engine({"train",
                                        "--model",
                                        "gpt-nano",
                                        "--dataset",
                                        "text",
                                        "--data-dir",
                                        folder / "alphabet.txt",
                                        "--context",
                                        "8",
                                        "--batch-size",
                                        "8",
                                        "--steps",
                                        "12",
                                        "--lr",
                                        "0.3",
                                        "--threads",
                                        "1",
                                        "--ema",
                                        "0.99",
                                        "--save-dir",
                                        folder / "run"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string checkpoint = folder / "run/step-00000012.ckpt",
                    weights = folder / "ema.safetensors", imported = folder / "ema.ckpt";
  ASSERT_EQ(engine({"export", checkpoint, "-o", weights, "--weights", "ema"}).exit_code, 0);
  ASSERT_EQ(engine({"import", weights, "-o", imported, "--model", "gpt-nano", "--dataset", "text",
                    "--data-dir", folder / "alphabet.txt", "--context", "8"})
                .exit_code,
            0);
  const auto sample = [](const std::string& path, const std::string& which) {
    return engine({"sample", path, "--prompt", "abc", "-n", "40", "--threads", "1", "--weights",
                   which})
        .out;
  };
  EXPECT_EQ(sample(checkpoint, "ema"), sample(imported, "model"));
  EXPECT_NE(sample(checkpoint, "ema"), sample(checkpoint, "model"));
}

}  // namespace
