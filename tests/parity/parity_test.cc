// The real program against stored PyTorch losses: same weights, same batches, same numbers, on one
// rank and on two. float64 within 1e-9. float32 no further from PyTorch's float64 than five times
// as far as PyTorch's own float32 is, or as the last bits of the weights bring it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <tuple>

#include "tests/parity/loss_trace.h"
#include "tests/parity/parity_weights.h"
#include "tests/support/test_support.h"

namespace parity {
namespace {

TEST(LossTraceTest, TellsTheFirstStepThatDiffers) {
  EXPECT_FALSE(first_difference({1, 2, 3}, {1, 2, 3 + 1e-12}, 3, 1e-9));
  EXPECT_FALSE(first_difference({1, 2, 3}, {1, 2, 9}, 2, 1e-9));
  EXPECT_NE(first_difference({1, 2, 3}, {1, 2.1, 9}, 3, 1e-9).value_or("").find("step 2"),
            std::string::npos);
}

TEST(LossTraceTest, NanAndMissingStepsAreDifferences) {
  EXPECT_TRUE(first_difference({1, 2}, {1, std::nan("")}, 2, 1e-9));
  EXPECT_TRUE(first_difference({1, std::nan("")}, {1, std::nan("")}, 2, 1e-9));
  EXPECT_TRUE(first_difference({1, 2}, {1}, 2, 1e-9));
}

TEST(LossTraceTest, Float32MayStrayFiveTimesAsFarAsThePeersFloat32) {
  const std::vector<double> exact{1, 2, 3}, peer{1, 2 + 1e-3, 3};
  EXPECT_FALSE(first_stray(exact, peer, {1 + 0.9e-6, 2 + 4.9e-3, 3 - 7e-3}, 3));
  EXPECT_FALSE(first_stray(exact, peer, {1 + 2e-3, 2, 3}, 3));
  EXPECT_TRUE(first_stray(exact, exact, {1 + 1.1e-6, 2, 3}, 3));
  EXPECT_TRUE(first_stray(exact, peer, {1, 2 + 5.1e-3, 3}, 3));
  EXPECT_TRUE(first_stray(exact, peer, {1, 2, std::nan("")}, 3));
  EXPECT_TRUE(first_stray(exact, peer, {1, 2}, 3));
}

struct Trace {
  const char *model, *variant;  // of the stored files' names
  std::size_t steps;
  const char* options;  // as make_traces.sh gives them, with blanks between
};

void PrintTo(const Trace& trace, std::ostream* out) {
  *out << trace.model << trace.variant;
}  // for the test library

using Comparison = std::tuple<Trace, const char*, int>;  // with dtype and ranks

std::string name_of(const Comparison& c, const std::string& dtype) {
  const auto& [trace, own_dtype, ranks] = c;
  return std::string(trace.model) + trace.variant + "-" + dtype + "-" + std::to_string(ranks);
}

bool sync_bn(const Comparison& c) {
  return std::string(std::get<0>(c).options).find("--sync-bn") != std::string::npos;
}

// With synchronized batch norm several ranks have the losses of one.
std::vector<double> stored_trace(Comparison c, const std::string& dtype) {
  if (sync_bn(c)) std::get<int>(c) = 1;
  return read_trace(test_support::source_directory() + "/tests/parity/data/" + name_of(c, dtype) +
                    ".txt");
}

class ParityTest : public testing::TestWithParam<Comparison> {
 protected:
  // The folder of test data that the model's set lies in.
  static std::string data_set() {
    const std::string model = std::get<0>(GetParam()).model;
    if (model.starts_with("gpt")) return "tinyshakespeare";
    return model == "mlp" || model == "convnet" ? "mnist" : "cifar10";
  }
  std::string batch_size() const {
    if (data_set() == "mnist") return "100";
    return std::string(std::get<0>(GetParam()).model) == "pyramidnet110" ? "2" : "4";
  }
  // "" where there is none. Of CIFAR-10, the first 48 records in a folder of this test.
  std::string data() const {
    const std::string from = test_support::data_directory(data_set());
    if (from.empty() || data_set() != "cifar10") return from;
    const std::string shell = "cd '" + from +
                              "' && if [ -f data_batch_1.bin ]; then cat data_batch_1.bin; " +
                              "else xz -dc data_batch_1.bin.xz; fi | head -c 147504 >'" +
                              (folder_ / "data_batch_1.bin") + "'";
    const test_support::CommandResult result = test_support::run_command({"/bin/sh", "-c", shell});
    EXPECT_EQ(std::filesystem::file_size(folder_ / "data_batch_1.bin"), 147504U) << result.err;
    std::filesystem::copy_file(folder_ / "data_batch_1.bin", folder_ / "test_batch.bin");
    return folder_.path().string();
  }
  // Of the program's run on `data`, from weights as write_initial_weights() makes them.
  std::vector<double> losses(const std::string& data, int nudge = 0) const {
    const std::string number = std::to_string(nudge);
    const std::string weights = folder_ / ("weights" + number + ".safetensors"),
                      metrics = folder_ / ("metrics" + number + ".jsonl");
    write_initial_weights(std::get<0>(GetParam()).model, weights, nudge);
    const test_support::CommandResult result =
        test_support::run_command(command(data, weights, metrics), {}, 280'000);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.exit_code == 0 ? read_step_losses(metrics) : std::vector<double>{};
  }
  std::vector<std::string> command(const std::string& data, const std::string& weights,
                                   const std::string& metrics) const {
    const auto& [trace, dtype, ranks] = GetParam();
    std::vector<std::string> words = {test_support::engine_binary(), "train", "--no-shuffle",
                                      "--model", trace.model};
    const auto add = [&words](std::initializer_list<std::string> more) {
      words.insert(words.end(), more);
    };
    add({"--dataset", data_set(), "--data-dir", data, "--init-from", weights});
    if (data_set() == "tinyshakespeare")
      add({"--context", "64", "--batch-size", "12"});
    else
      add({"--normalize", "unit", "--batch-size", batch_size()});
    add({"--steps", std::to_string(trace.steps), "--dtype", dtype, "--threads", "1"});
    add({"--metrics", metrics, "--log-every", "1", "--eval-every", "0"});
    std::istringstream options(trace.options);
    for (std::string word; options >> word;) words.push_back(word);
    if (ranks > 1) add({"--spawn", std::to_string(ranks), "--backend", PARITY_BACKEND});
    return words;
  }

  test_support::TemporaryDirectory folder_;
};

TEST_P(ParityTest, LossesAreThoseOfPyTorch) {
  const auto& [trace, dtype, ranks] = GetParam();
  const std::string from = data();
  if (from.empty()) GTEST_SKIP() << "no data set " << data_set();
  const std::vector<double> got = losses(from), exact = stored_trace(GetParam(), "f64");
  if (std::string_view(dtype) == "f64") {
    const auto difference = first_difference(exact, got, trace.steps, 1e-9);
    EXPECT_FALSE(difference) << *difference;
    return;
  }
  auto difference = first_stray(exact, stored_trace(GetParam(), "f32"), got, trace.steps);
  // In some order of summation a value comes so close to a kink (a ReLU at zero, two equals in a
  // pooling window) that rounding decides on which side it falls; from there on the losses part,
  // although every step is right. How far is told by the same program from weights that differ in
  // their last bits only: an error of the kernels would be in all of these runs alike.
  if (difference) {
    double spread = 0;
    for (int nudge = 1; nudge <= 4; ++nudge) {
      const std::vector<double> other = losses(from, nudge);
      ASSERT_GE(std::min(other.size(), got.size()), trace.steps);
      for (std::size_t i = 0; i < trace.steps; ++i)
        spread = std::max(spread, std::abs(other[i] - got[i]) / std::abs(exact[i]));
    }
    constexpr double kMaxSpread = 0.01;  // more is no rounding
    difference = first_difference(exact, got, trace.steps, std::min(5 * spread, kMaxSpread));
  }
  EXPECT_FALSE(difference) << *difference;
}

constexpr Trace kTraces[] = {
    {"mlp", "", 50, "--lr 0.05 --momentum 0.9"},
    {"mlp", "-decay", 50, "--lr 0.05 --momentum 0.9 --weight-decay 0.01"},
    {"mlp", "-adamw", 50, "--lr 0.0005 --optimizer adamw --weight-decay 0.1"},
    {"convnet", "", 50, "--lr 0.01 --momentum 0.9"},
    {"convnet", "-decay", 20, "--lr 0.01 --momentum 0.9 --weight-decay 0.01"},
    {"convnet", "-adamw", 20, "--lr 0.0005 --optimizer adamw --weight-decay 0.1"},
    {"resnet18-cifar", "", 12, "--lr 0.0001 --momentum 0.9"},
    {"resnet18-cifar", "-decay", 6, "--lr 0.0001 --momentum 0.9 --weight-decay 0.1"},
    {"resnet18-cifar", "-adamw", 6, "--lr 0.00001 --optimizer adamw --weight-decay 0.1"},
    {"resnet50-cifar", "-decay", 3, "--lr 0.0001 --momentum 0.9 --weight-decay 0.1"},
    {"pyramidnet110", "-decay", 3, "--lr 0.0001 --momentum 0.9 --weight-decay 0.1"},
    {"gpt-nano", "", 20, "--lr 0.05 --momentum 0.9"},
    {"gpt-nano", "-decay", 20, "--lr 0.05 --momentum 0.9 --weight-decay 0.01"},
    {"gpt-nano", "-adamw", 50, "--lr 0.001 --optimizer adamw --weight-decay 0.01"},
};

std::string test_name(const testing::TestParamInfo<Comparison>& i) {
  std::string name = name_of(i.param, std::get<1>(i.param)) + (sync_bn(i.param) ? "_sync_bn" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Traces, ParityTest,
                         testing::Combine(testing::ValuesIn(kTraces), testing::Values("f64", "f32"),
                                          testing::Values(1, 2)),
                         test_name);

constexpr Trace kSyncBnTraces[] = {
    {"convnet", "", 50, "--lr 0.01 --momentum 0.9 --sync-bn"},
    {"resnet18-cifar", "", 12, "--lr 0.0001 --momentum 0.9 --sync-bn"},
};

INSTANTIATE_TEST_SUITE_P(SyncBn, ParityTest,
                         testing::Combine(testing::ValuesIn(kSyncBnTraces), testing::Values("f64"),
                                          testing::Values(2)),
                         test_name);

}  // namespace
}  // namespace parity
