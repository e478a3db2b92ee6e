// --weights of eval, export and sample: an average of a checkpoint in the model's place.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;

CommandResult train_convnet(const std::string& folder, const std::vector<std::string>& more) {
  return call(
      "train --model convnet --dataset synthetic --batch-size 12 --spawn 2 --threads 1 --log-every "
      "0 --synthetic-size 60 --synthetic-shape 8x8x1 --save-dir",
      folder, more);
}

// From `before` to the end of its line.
std::string rest_of_line(const std::string& text, const std::string& before) {
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return "no '" + before + "'";
  return text.substr(at + before.size(), text.find('\n', at) - at - before.size());
}

TEST(Weights, AMovingAverageIsEvaluatedAndExported) {
  const TemporaryDirectory folder;
  const CommandResult trained = expect_success(
      train_convnet(folder / "run", {"--ema", "0.75", "--metrics", folder / "m.jsonl"}));
  const std::string checkpoint = folder / "run/step-00000005.ckpt",
                    model = rest_of_line(trained.out, "Test after step 5: "),
                    average = rest_of_line(trained.out, "Test after step 5 (ema): ");
  EXPECT_NE(model, average) << trained.out;
  EXPECT_CONTAINS(test_support::read_text(folder / "m.jsonl"), ",\"weights\":\"ema\"}");
  EXPECT_EQ(rest_of_line(engine({"eval", checkpoint}).out, "(test): "), model);
  const CommandResult eval = call("eval", checkpoint, "--weights ema");
  EXPECT_EQ(rest_of_line(eval.out, checkpoint + " ema on synthetic (test): "), average) << eval.out;
  EXPECT_CONTAINS(call("eval", checkpoint, "--weights ema --format json").out,
                  "\"weights\":\"ema\"");

  const std::string file = folder / "ema.safetensors";
  expect_success(call("export", checkpoint, "-o", file, "--weights ema"));
  const CommandResult exported =
      call("eval", file,
           "--model convnet --dataset synthetic --synthetic-size 60 --synthetic-shape 8x8x1");
  EXPECT_EQ(rest_of_line(exported.out, "(test): "), average) << exported.err;
}

TEST(Weights, AnAverageOfEpochsIsEvaluatedWithItsOwnStatistics) {
  const TemporaryDirectory folder;
  const CommandResult trained = expect_success(
      train_convnet(folder / "run", {"--epochs", "3", "--average-last", "2", "--lr", "0.1"}));
  const std::string checkpoint = folder / "run/step-00000015.ckpt",
                    average = rest_of_line(trained.out, "Test after step 15 (average): ");
  EXPECT_LACKS(trained.out, "Test after step 10 (average)");
  const CommandResult eval = call("eval", checkpoint, "--weights average");
  EXPECT_EQ(rest_of_line(eval.out, "(test): "), average) << eval.out << eval.err;
  expect_error(call("eval", checkpoint, "--weights ema"), 65,
               checkpoint + " moving average (train --ema); has an average");
  expect_error(call("eval", folder / "run/step-00000010.ckpt", "--weights average"), 65,
               "step-00000010.ckpt average not complete");
}

TEST(Weights, WithoutAnAverageThereIsNone) {
  const TemporaryDirectory folder;
  expect_success(train_convnet(folder / "run", {}));
  const std::string checkpoint = folder / "run/step-00000005.ckpt", file = folder / "m.npz";
  const std::string words = checkpoint + " moving average --ema";
  expect_error(call("eval", checkpoint, "--weights ema"), 65, words);
  expect_error(call("export", checkpoint, "-o", file, "--weights ema"), 65, words);
  expect_success(call("export", checkpoint, "-o", file));
  EXPECT_EQ(call("export", file, "-o", folder / "n.npz", "--weights ema").exit_code, 65);
  EXPECT_EQ(call("eval", checkpoint, "--weights best").exit_code, 2);
}

TEST(Weights, TextIsSampledFromAnAverage) {
  const TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "abcdefgh ";
  test_support::write_text(folder / "alphabet.txt", text);
  expect_success(
      call("train --model gpt-nano --dataset text --data-dir", folder / "alphabet.txt",
           "--context 8 --batch-size 8 --steps 12 --lr 0.3 --threads 1 --ema 0.99 --save-dir",
           folder / "run"));
  const std::string checkpoint = folder / "run/step-00000012.ckpt",
                    weights = folder / "ema.safetensors", imported = folder / "ema.ckpt";
  expect_success(call("export", checkpoint, "-o", weights, "--weights ema"));
  expect_success(call("import", weights, "-o", imported,
                      "--model gpt-nano --dataset text --data-dir", folder / "alphabet.txt",
                      "--context 8"));
  const auto sample = [](const std::string& path, const std::string& which) {
    return call("sample", path, "--prompt abc -n 40 --threads 1 --weights", which).out;
  };
  EXPECT_EQ(sample(checkpoint, "ema"), sample(imported, "model"));
  EXPECT_NE(sample(checkpoint, "ema"), sample(checkpoint, "model"));
}

}  // namespace
