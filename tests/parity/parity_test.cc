// The real program against stored PyTorch losses: same weights, same batches, same numbers, on one rank and on two.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/parity/loss_trace.h"
#include "tests/parity/parity_weights.h"
#include "tests/support/test_support.h"

namespace parity {
namespace {

TEST(LossTraceTest, TellsTheFirstStepThatDiffers) {
  EXPECT_FALSE(first_difference({1, 2, 3}, {1, 2, 3 + 1e-12}, 3, 1e-9));
  EXPECT_FALSE(first_difference({1, 2, 3}, {1, 2, 9}, 2, 1e-9));
  EXPECT_NE(first_difference({1, 2, 3}, {1, 2.1, 9}, 3, 1e-9).value_or("").find("step 2"), std::string::npos);
}

TEST(LossTraceTest, NanAndMissingStepsAreDifferences) {
  EXPECT_TRUE(first_difference({1, 2}, {1, std::nan("")}, 2, 1e-9));
  EXPECT_TRUE(first_difference({1, std::nan("")}, {1, std::nan("")}, 2, 1e-9));
  EXPECT_TRUE(first_difference({1, 2}, {1}, 2, 1e-9));
}

struct Comparison {
  const char *model, *dtype;
  int ranks;
  const char* learning_rate;
  std::size_t steps;
  double relative;
  bool sync_bn = false;  // then against the trace of one rank, which it must equal
};

void PrintTo(const Comparison& c, std::ostream* out) { *out << c.model << " " << c.dtype << " on " << c.ranks << " ranks"; }

class ParityTest : public testing::TestWithParam<Comparison> {};

TEST_P(ParityTest, LossesAreThoseOfPyTorch) {
  const Comparison& c = GetParam();
  const std::string data = test_support::data_directory("mnist");
  if (data.empty()) GTEST_SKIP() << "no data set mnist";

  const test_support::TemporaryDirectory folder;
  write_initial_weights(c.model, folder / "initial.safetensors");
  std::vector<std::string> command = {test_support::engine_binary(),
                                      "train",
                                      "--model",
                                      c.model,
                                      "--dataset",
                                      "mnist",
                                      "--data-dir",
                                      data,
                                      "--no-shuffle",
                                      "--normalize",
                                      "unit",
                                      "--init-from",
                                      folder / "initial.safetensors",
                                      "--batch-size",
                                      "100",
                                      "--steps",
                                      std::to_string(c.steps),
                                      "--lr",
                                      c.learning_rate,
                                      "--momentum",
                                      "0.9",
                                      "--dtype",
                                      c.dtype,
                                      "--threads",
                                      "1",
                                      "--metrics",
                                      folder / "metrics.jsonl",
                                      "--log-every",
                                      "1",
                                      "--eval-every",
                                      "0"};
  if (c.ranks > 1) command.insert(command.end(), {"--spawn", std::to_string(c.ranks), "--backend", PARITY_BACKEND});
  if (c.sync_bn) command.emplace_back("--sync-bn");
  const test_support::CommandResult result = test_support::run_command(command, {}, 280'000);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;

  const std::string name = std::string(c.model) + "-" + c.dtype + "-" + (c.sync_bn ? "1" : std::to_string(c.ranks)) + ".txt";
  const auto difference = first_difference(read_trace(test_support::source_directory() + "/tests/parity/data/" + name),
                                           read_step_losses(folder / "metrics.jsonl"), c.steps, c.relative);
  EXPECT_FALSE(difference) << *difference;
}

// How far float32 strays by itself: mlp 3e-7 in 50 steps; convnet 4e-7 in 20, then a single switched maximum shows.
INSTANTIATE_TEST_SUITE_P(
    Traces, ParityTest,
    testing::Values(Comparison{"mlp", "f64", 1, "0.05", 50, 1e-9}, Comparison{"mlp", "f64", 2, "0.05", 50, 1e-9},
                    Comparison{"mlp", "f32", 1, "0.05", 50, 1e-5}, Comparison{"mlp", "f32", 2, "0.05", 50, 1e-5},
                    Comparison{"convnet", "f64", 1, "0.01", 50, 1e-9}, Comparison{"convnet", "f64", 2, "0.01", 50, 1e-9},
                    Comparison{"convnet", "f32", 1, "0.01", 20, 1e-4}, Comparison{"convnet", "f32", 2, "0.01", 20, 1e-4},
                    Comparison{"convnet", "f64", 2, "0.01", 50, 1e-9, true}),
    [](const testing::TestParamInfo<Comparison>& i) {
      return std::string(i.param.model) + "_" + i.param.dtype + "_" + std::to_string(i.param.ranks) +
             (i.param.sync_bn ? "_sync_bn" : "");
    });

}  // namespace
}  // namespace parity
