// Regressions, several labels of 0 or 1, and weighted classes of the real program against stored
// PyTorch losses: the same table, weights and batches. float64 within 1e-9 step by step, on one
// rank and on two; float32 within rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "io/interchange/array_files.h"
#include "tests/parity/loss_trace.h"
#include "tests/support/test_support.h"

namespace parity {
namespace {

// As regression_traces.py has them.
constexpr int kRows = 48, kFeatures = 3, kHidden = 8, kSteps = 24;

// The labels u and v, of which v is unknown in every fifth row, the class k, and the number y.
std::string table() {
  std::string text = "a,b,c,u,v,k,y\n";
  for (int r = 0; r < kRows; ++r) {
    double x[kFeatures];
    for (int c = 0; c < kFeatures; ++c) {
      x[c] = (r * 17 + c * 29) % 41 / 8.0;
      text += std::to_string(x[c]) + ",";  // six places: exact
    }
    text += 3 * x[0] > 2 * x[1] + 2 ? "1," : "0,";
    text += r % 5 == 3 ? "," : x[0] * x[2] > 5 ? "1," : "0,";
    text += std::to_string(static_cast<int>(x[0] + x[2]) % 3) + ",";
    text += std::to_string(40 + 3 * x[0] - 2 * x[1] + x[0] * x[2]) + "\n";
  }
  return text;
}

constexpr const char* kModel =
    "[[layer]]\nkind = \"flatten\"\n"
    "[[layer]]\nkind = \"dense\"\nname = \"hidden\"\nout = 8\n"
    "[[layer]]\nkind = \"relu\"\n"
    "[[layer]]\nkind = \"dense\"\nname = \"out\"\nout = \"classes\"\n";

std::vector<float> weights(int count, int salt) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    values.push_back(static_cast<float>((i * 37 + salt) % 101 - 50) / 128);
  return values;
}

void write_weights(const std::string& path, int outputs) {
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> parameters{
      {"hidden.weight", {kHidden, kFeatures}},
      {"hidden.bias", {kHidden}},
      {"out.weight", {outputs, kHidden}},
      {"out.bias", {outputs}}};
  std::vector<io::NamedArray> arrays;
  for (const auto& [name, shape] : parameters) {
    int count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<int>(extent);
    const std::vector<float> values = weights(count, static_cast<int>(arrays.size()));
    const auto bytes = std::as_bytes(std::span(values));
    arrays.push_back({.name = name, .shape = shape, .data = {bytes.begin(), bytes.end()}});
  }
  io::save_arrays(arrays, path);
}

using Comparison = std::tuple<const char*, const char*, int>;  // loss, dtype, ranks

class RegressionParity : public testing::TestWithParam<Comparison> {};

TEST_P(RegressionParity, LossesAreThoseOfPyTorch) {
  const auto& [name, dtype, ranks] = GetParam();
  const std::string loss = name;
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "t.csv", table());
  test_support::write_text(folder / "m.toml", kModel);
  const bool of_labels = loss.starts_with("bce"), of_classes = loss.starts_with("ce");
  write_weights(folder / "w.npz", of_classes ? 3 : of_labels ? 2 : 1);
  std::vector<std::string> words{"train", "--model", folder / "m.toml", "--dataset", "csv"};
  const auto add = [&words](std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
  };
  add({"--annotations", folder / "t.csv", "--columns", "a,b,c"});
  if (of_labels)
    add({"--task", "multi-label", "--label-column", "u,v"});
  else if (of_classes)
    add({"--label-column", "k"});
  else
    add({"--task", "regression", "--loss", loss});
  if (loss == "bce-weighted") add({"--class-weights", "1.3,0.7"});
  if (loss == "ce-weighted") add({"--class-weights", "0.3,2.1,1.1"});
  add({"--test-share", "0", "--no-shuffle", "--init-from", folder / "w.npz"});
  add({"--batch-size", "12", "--steps", std::to_string(kSteps), "--dtype", dtype});
  add({"--lr", "0.02", "--momentum", "0.9", "--threads", "1"});
  add({"--metrics", folder / "m.jsonl", "--log-every", "1", "--eval-every", "0"});
  if (ranks > 1) add({"--spawn", std::to_string(ranks)});
  const test_support::CommandResult result = test_support::engine(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<double> expected = read_trace(
      test_support::source_directory() + "/tests/parity/data/regression-" + loss + "-f64.txt");
  ASSERT_EQ(expected.size(), std::size_t{kSteps});
  const bool is_weighted = loss.ends_with("weighted");
  const double allowed = std::string_view(dtype) != "f64" ? 2e-5 : is_weighted ? 1e-12 : 1e-9;
  const auto difference =
      first_difference(expected, read_step_losses(folder / "m.jsonl"), kSteps, allowed);
  EXPECT_FALSE(difference) << *difference;
}

INSTANTIATE_TEST_SUITE_P(Traces, RegressionParity,
                         testing::Combine(testing::Values("mse", "mae", "huber", "bce",
                                                          "bce-weighted", "ce-weighted"),
                                          testing::Values("f64", "f32"), testing::Values(1, 2, 3)),
                         [](const auto& i) {
                           std::string name = std::get<0>(i.param);
                           std::ranges::replace(name, '-', '_');
                           return name + "_" + std::get<1>(i.param) + "_" +
                                  std::to_string(std::get<2>(i.param));
                         });

}  // namespace
}  // namespace parity
