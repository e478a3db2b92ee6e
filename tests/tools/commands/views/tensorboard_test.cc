// --tensorboard, read back by TensorBoard itself where PEER_PYTHON (python3) has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using program::quick_train;
using test_support::argv;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

class Tensorboard : public testing::Test {
 protected:
  // Skips the test where there is no TensorBoard.
  void read(const std::string& folder) {
    const char* python = std::getenv("PEER_PYTHON");
    const CommandResult result = test_support::run_command(
        {"/usr/bin/env", python == nullptr ? "python3" : python,
         test_support::source_directory() + "/tests/tools/commands/views/read_events.py", folder});
    if (result.exit_code == 77) GTEST_SKIP() << result.out;
    ASSERT_EQ(result.exit_code, 0) << result.err;
    lines_ = lines_of(result.out);
  }
  bool has(const std::string& line) const { return std::ranges::count(lines_, line) == 1; }
  // By step.
  std::map<int, double> scalars(const std::string& tag) const {
    std::map<int, double> values;
    for (const std::string& line : lines_) {
      std::istringstream in(line);
      std::string kind, name;
      int step = 0;
      double value = 0;
      in >> kind >> name >> step >> value;
      if (kind != "scalar" || name != tag) continue;
      EXPECT_FALSE(values.contains(step)) << line;
      values[step] = value;
    }
    return values;
  }

  const TemporaryDirectory folder_;
  std::vector<std::string> lines_;
};

// The number that follows "KEY": in the metrics' lines of an event, by step.
std::map<int, double> metric(const std::string& file, const std::string& event,
                             const std::string& key) {
  std::map<int, double> values;
  for (const std::string& line : lines_of(test_support::read_text(file))) {
    if (line.find("\"event\":\"" + event + "\"") == std::string::npos) continue;
    const auto number = [&](const std::string& name) {
      const std::size_t at = line.find("\"" + name + "\":");
      return at == std::string::npos ? NAN : std::stod(line.substr(at + name.size() + 3));
    };
    values[static_cast<int>(number("step"))] = number(key);
  }
  return values;
}

void expect_same(const std::map<int, double>& shown, const std::map<int, double>& expected,
                 std::size_t count) {
  ASSERT_EQ(shown.size(), count);
  ASSERT_EQ(expected.size(), count);
  for (const auto& [step, value] : expected) {
    ASSERT_TRUE(shown.contains(step)) << step;
    EXPECT_EQ(static_cast<float>(shown.at(step)), static_cast<float>(value)) << step;
  }
}

TEST_F(Tensorboard, ShowsARunThatWasResumed) {
  const std::string run = folder_ / "run";
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments =
        quick_train(argv("--spawn 2 --log-every 1 --clip-grad 1 --tensorboard --histograms 4 "
                         "--keep-last 0 --save-every 2s"));
    arguments = test_support::overridden(arguments, more);
    expect_success(test_support::engine(arguments));
  };
  train(argv("--save-dir", run, "--epochs 2"));  // ten steps
  ASSERT_EQ(files_in(run + "/tensorboard"), 1u);
  fs::rename(run + "/metrics.jsonl", folder_ / "first.jsonl");
  // What came after step 6 was given up, and is replaced.
  train(argv("--save-dir", run, "--epochs 3 --resume", run + "/step-00000006.ckpt", "--lr 0.01"));
  ASSERT_EQ(files_in(run + "/tensorboard"), 2u);
  ASSERT_NO_FATAL_FAILURE(read(run + "/tensorboard"));
  if (IsSkipped()) return;

  const auto both = [&](const std::string& event, const std::string& key) {
    std::map<int, double> values = metric(run + "/metrics.jsonl", event, key);
    for (const auto& [step, value] : metric(folder_ / "first.jsonl", event, key))
      if (step <= 6) values[step] = value;
    return values;
  };
  expect_same(scalars("train/loss"), both("step", "loss"), 15);
  expect_same(scalars("train/accuracy"), both("step", "accuracy"), 15);
  expect_same(scalars("train/learning_rate"), both("step", "lr"), 15);
  expect_same(scalars("speed/samples_per_second"), both("step", "samples_per_s"), 15);
  expect_same(scalars("test/loss"), both("eval", "loss"), 3);
  expect_same(scalars("test/accuracy"), both("eval", "accuracy"), 3);
  expect_same(scalars("test/top5"), both("eval", "top5"), 3);
  for (const auto& [step, norm] : scalars("train/gradient_norm")) EXPECT_GT(norm, 0) << step;
  EXPECT_EQ(scalars("train/gradient_norm").size(), 15u);
  // The mean over the ranks is what the metrics have.
  for (const char* phase : {"data", "forward", "backward", "communication", "update"}) {
    const std::string tag = std::string("phases/") + phase + "_seconds/rank_";
    const std::map<int, double> first = scalars(tag + "0"), second = scalars(tag + "1"),
                                mean = both("step", std::string(phase) + "_s");
    ASSERT_EQ(first.size(), 15u) << phase;
    ASSERT_EQ(second.size(), 15u) << phase;
    for (const auto& [step, value] : mean)
      EXPECT_NEAR((first.at(step) + second.at(step)) / 2, value, 1e-5 * value + 1e-12) << phase;
  }

  // A layer of 36 inputs: as many numbers as the weights are.
  for (const char* kind : {"parameters", "gradients"}) {
    const std::string tag = std::string("histogram ") + kind + "/layers.0.bias ";
    EXPECT_TRUE(has(tag + "4 512")) << kind;
    EXPECT_TRUE(has(tag + "8 512")) << kind;
    EXPECT_TRUE(has(tag + "12 512")) << kind;
  }
  EXPECT_TRUE(has("text run/configuration 0     batch-size = 12"));
  EXPECT_TRUE(has("text run/configuration 6     lr = 0.01"));
}

// The HPARAMS tab: options with their types, and the metrics of runs.
TEST_F(Tensorboard, HasHyperparametersAndTheirOutcome) {
  expect_success(test_support::engine(quick_train(
      argv("--tensorboard-dir", folder_ / "elsewhere", "--lr 0.25 --epochs 1 --seed 5"))));
  ASSERT_NO_FATAL_FAILURE(read(folder_ / "elsewhere"));
  if (IsSkipped()) return;
  for (const char* line :
       {"value lr 0.25", "value model mlp", "value shuffle True", "value batch-size 12.0",
        "option lr 3", "option model 1", "option shuffle 2", "metric test/accuracy",
        "metric test/loss", "metric test/top5", "end 1"})
    EXPECT_TRUE(has(line)) << line;
  EXPECT_FALSE(has("metric test/perplexity"));  // of text
  EXPECT_EQ(scalars("test/accuracy").size(), 1u);
  for (const std::string& line : lines_)
    EXPECT_FALSE(line.starts_with("value tensorboard")) << line;
}

TEST_F(Tensorboard, ARunThatDivergesHasFailed) {
  const CommandResult result = test_support::engine(quick_train(
      {"--tensorboard-dir", folder_ / "t", "--lr", "1e6", "--log-every", "1", "--epochs", "3"}));
  ASSERT_EQ(result.exit_code, 79) << result.err;
  ASSERT_NO_FATAL_FAILURE(read(folder_ / "t"));
  if (IsSkipped()) return;
  EXPECT_TRUE(has("end 2"));
  EXPECT_TRUE(std::ranges::any_of(lines_, [](const std::string& line) {
    return line.starts_with("text run/events ") && line.find(" not finite") != std::string::npos;
  }));
}

// What --log-gpu tells of each device, by a management library that is played.
TEST_F(Tensorboard, HasFiguresOfEachGpu) {
  expect_success(test_support::engine(
      quick_train(argv("--tensorboard-dir", folder_ / "t", "--metrics", folder_ / "metrics.jsonl",
                       "--log-gpu 2 --epochs 1 --device cpu")),
      {{"ENGINE_NVML_LIBRARY", FAKE_NVML_LIBRARY}}));
  ASSERT_NO_FATAL_FAILURE(read(folder_ / "t"));
  if (IsSkipped()) return;
  using Values = std::map<int, double>;  // by step
  EXPECT_EQ(scalars("gpu_0/utilization"), (Values{{2, 90}, {4, 90}}));
  EXPECT_EQ(scalars("gpu_1/utilization"), (Values{{2, 91}, {4, 91}}));
  EXPECT_EQ(scalars("gpu_0/memory_used"), (Values{{2, 1e9}, {4, 1e9}}));
  EXPECT_EQ(scalars("gpu_1/watts"), (Values{{2, 412.5}, {4, 412.5}}));
  EXPECT_EQ(scalars("gpu_0/sm_mhz").size(), 2u);
  EXPECT_EQ(scalars("gpu_1/sm_mhz").size(), 0u);  // it does not tell
}

// Nothing is written that was not asked for.
TEST_F(Tensorboard, IsOffUnlessAskedFor) {
  expect_success(
      test_support::engine(quick_train(argv("--save-dir", folder_ / "run", "--epochs 1"))));
  EXPECT_FALSE(fs::exists(folder_ / "run/tensorboard"));
}

// Whatever reads it: the pictures and the table are in the file, once an evaluation.
TEST_F(Tensorboard, ShowsSamplesWithEachEvaluation) {
  const std::string folder = folder_ / "t";
  expect_success(test_support::engine(
      quick_train(argv("--tensorboard-dir", folder, "--tensorboard-samples 4 --epochs 2"))));
  const std::string bytes = test_support::read_text(fs::directory_iterator(folder)->path());
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (std::size_t at = 0; (at = bytes.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("samples/predictions"), 2);
  EXPECT_EQ(count("| sample | label | prediction | probability |"), 2);
#ifdef HAS_PNG
  EXPECT_EQ(count("samples/test_"), 8);
  EXPECT_EQ(count("IHDR"), 8);
#endif
  expect_error(test_support::engine(quick_train(argv("--tensorboard-samples 4"))), 78,
               "--tensorboard-samples requires --tensorboard or --tensorboard-dir DIR");
}

#ifdef HAS_PNG
// The pictures can be decoded, have a frame of two pixels around the sample's 6 x 6, and it is
// green where the table says that the model is right.
TEST_F(Tensorboard, ReadsTheSamplesAsPictures) {
  expect_success(test_support::engine(quick_train(
      {"--tensorboard-dir", folder_ / "t", "--tensorboard-samples", "4", "--epochs", "1"})));
  ASSERT_NO_FATAL_FAILURE(read(folder_ / "t"));
  if (IsSkipped()) return;
  int pictures = 0;
  for (const std::string& line : lines_) {
    std::istringstream in(line);
    std::string kind, tag, bar, sample, row;
    // "text samples/predictions 5 | 3 | 1 | **4** | ..."
    in >> kind >> tag >> row >> bar >> sample;
    if (tag != "samples/predictions" || sample.empty() ||
        sample.find_first_not_of("0123456789") != std::string::npos)
      continue;
    const bool wrong = line.find("**") != std::string::npos;
    EXPECT_TRUE(has("image samples/test_" + sample + " 5 10 10 " + (wrong ? "red" : "green")))
        << line;
    ++pictures;
  }
  EXPECT_EQ(pictures, 4);
}
#endif

TEST_F(Tensorboard, MistakesAreSaidFirst) {
  const auto train = [&](const std::vector<std::string>& more) {
    return test_support::engine(quick_train(more));
  };
  expect_error(train({"--tensorboard"}), 78,
               "--tensorboard requires --save-dir, or --tensorboard-dir DIR instead");
  expect_error(train(argv("--histograms 5 --save-dir", folder_ / "run")), 78,
               "--histograms requires --tensorboard or --tensorboard-dir DIR");
  test_support::write_text(folder_ / "file", "");
  const CommandResult result = train({"--tensorboard-dir", folder_ / "file/t"});
  expect_error(result, 73, "tensorboard " + (folder_ / "file/t") + ": cannot create: ");
  EXPECT_EQ(result.out, "");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

}  // namespace
