// Commands with a folder of transformers, before and after training: texts of any length, files for
// other programs, and weights alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/published/published_fixture.h"

namespace {

namespace fs = std::filesystem;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;

std::string id_list(const std::vector<std::int64_t>& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

class PublishedUse : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    fs::create_directory(data_);
    test_support::write_text(data_ + "/train.npy", published::token_file(400));
    test_support::write_text(data_ + "/val.npy", published::token_file(80));
  }
  // A run whose weights are those of the folder.
  void train(const std::string& run) const {
    expect_success(
        call("train --dataset tokens --context 6 --batch-size 4 --threads 1 --steps 1 --lr 1e-30 "
             "--model",
             model_, "--data-dir", data_, "--save-dir", run));
  }
  void set(const std::string& from, const std::string& to) const {
    std::string config = test_support::read_text(model_ + "/config.json");
    ASSERT_NE(config.find(from), std::string::npos);
    test_support::write_text(model_ + "/config.json",
                             config.replace(config.find(from), from.size(), to));
  }
  // The prompt and the most likely `count` ids after it, each computed from the last `window` ones.
  std::string continued(std::vector<std::int64_t> ids, int count, std::size_t window) const {
    for (int i = 0; i < count; ++i) {
      const std::vector<std::int64_t> seen(
          ids.end() - static_cast<std::ptrdiff_t>(std::min(window, ids.size())), ids.end());
      published::PublishedNetwork network(model_, std::ssize(seen), engine::DType::kF32);
      const std::vector<double> logits = network.logits(seen);
      const auto last = logits.end() - std::ssize(logits) / std::ssize(seen);
      ids.push_back(std::max_element(last, logits.end()) - last);
    }
    return id_list(ids) + "\n";
  }
  static std::string sampled(const std::string& of, const std::vector<std::int64_t>& prompt,
                             int count) {
    return expect_success(call("sample --temperature 0 --threads 1 --ignore-end -n",
                               std::to_string(count), of, "--prompt-ids", id_list(prompt)))
        .out;
  }

  const test_support::TemporaryDirectory folder_;
  const std::string model_ = published::copy_of("golden_" + GetParam(), folder_),
                    data_ = folder_ / "data";
};

// transformers does not cut them either. The committed models have 9 and 16 positions.
TEST_P(PublishedUse, ATextIsCutOnlyForLearnedPositions) {
  constexpr int kCount = 12;
  const bool learned = GetParam() == "gpt2";
  std::vector<std::int64_t> prompt;
  for (std::int64_t i = 0; i < 30; ++i) prompt.push_back(i * i % 11);
  const std::string whole = continued(prompt, kCount, learned ? 9 : 100);
  EXPECT_NE(whole, continued(prompt, kCount, learned ? 6 : 16));
  EXPECT_EQ(sampled(model_, prompt, kCount), whole);
  train(folder_ / "run");
  EXPECT_EQ(sampled(folder_ / "run", prompt, kCount),
            learned ? continued(prompt, kCount, 6) : whole);
  expect_success(call("export", folder_ / "run", "--format hf -o", folder_ / "out"));
  EXPECT_EQ(sampled(folder_ / "out", prompt, kCount), whole);
}
INSTANTIATE_TEST_SUITE_P(Families, PublishedUse, testing::Values("gpt2", "llama", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

using PublishedMistral = PublishedUse;

TEST_P(PublishedMistral, TextsBeyondTheWindowAreAnError) {
  set("\"sliding_window\": null", "\"sliding_window\": 16");
  const std::vector<std::int64_t> prompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  train(folder_ / "run");
  for (const std::string& of : {model_, folder_ / "run"}) {
    EXPECT_EQ(sampled(of, prompt, 4), continued(prompt, 4, 16));
    program::expect_error(call("sample -n 5", of, "--prompt-ids", id_list(prompt)), 78,
                          "'sliding_window' 16; 17, 12 -n 5;");
  }
  // The largest -n would need memory for as many positions.
  set("\"sliding_window\": 16", "\"sliding_window\": null");
  program::expect_error(call("sample -n 1000000000000", model_, "--prompt-ids 1,2"), 78,
                        "-n 1000000000000 2 16777216");
}
INSTANTIATE_TEST_SUITE_P(Window, PublishedMistral, testing::Values("mistral"),
                         [](const auto& test) { return test.param; });

using PublishedFiles = PublishedUse;

TEST_P(PublishedFiles, AreExportedFromTheFolder) {
  train(folder_ / "run");
  const std::string half = folder_ / "half", onnx = folder_ / "m.onnx";
  expect_success(call("export", model_, "--format hf --bf16 -o", half));
  expect_success(call("export", folder_ / "run", "--format hf --bf16 -o", folder_ / "half_run"));
  EXPECT_EQ(test_support::read_text(half + "/model.safetensors"),
            test_support::read_text(folder_ / "half_run/model.safetensors"));
  const CommandResult written = expect_success(call("export", model_, "-o", onnx));
  EXPECT_CONTAINS(written.out, "int64 [batch, positions] -> logits float32 [batch, positions, 13]");
}

TEST_P(PublishedFiles, PositionsWithoutWeightsAreNamed) {
  const CommandResult evaluated =
      call("eval", model_, "--dataset tokens --context 10 --data-dir", data_);
  if (GetParam() != "gpt2") return static_cast<void>(expect_success(evaluated));
  program::expect_error(evaluated, 78, model_ + "/config.json 'n_positions' 9 10 --context");
}

// Imports of what was exported are sampled as the run: with the data's vocabulary, and without
// data.
TEST_P(PublishedFiles, AreSampledAfterAnImport) {
  train(folder_ / "run");
  const std::vector<std::int64_t> prompt{3, 1, 4};
  const std::string whole = sampled(folder_ / "run", prompt, 3), weights = folder_ / "w.npz";
  expect_success(call("export", folder_ / "run", "-o", weights));
  expect_success(call("import", weights, "-o", folder_ / "data.ckpt", "--model", model_,
                      "--dataset tokens --context 6 --data-dir", data_));
  expect_success(call("import", weights, "-o", folder_ / "bare.ckpt", "--model", model_));
  fs::remove_all(model_);
  EXPECT_EQ(sampled(folder_ / "data.ckpt", prompt, 3), whole);
  EXPECT_EQ(sampled(folder_ / "bare.ckpt", prompt, 3), whole);
  program::expect_error(call("sample", folder_ / "bare.ckpt", "--prompt a"), 78,
                        "--tokenizer FILE");
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "data.ckpt")).out, "loss");
}

TEST_P(PublishedFiles, WeightsAloneAreNamed) {
  const std::string weights = model_ + "/model.safetensors",
                    expected = weights + ": --model DIR, config.json";
  program::expect_error(
      call("train --dataset tokens --context 6 --batch-size 4 --threads 1 --steps 1 --model "
           "gpt-nano --data-dir",
           data_, "--init-from", weights),
      65, expected);
  program::expect_error(call("import", weights, "-o", folder_ / "i.ckpt", "--model gpt-nano"), 65,
                        expected);
  program::expect_error(
      call("eval", weights, "--model gpt-nano --dataset tokens --context 6 --data-dir", data_), 65,
      expected);
}
INSTANTIATE_TEST_SUITE_P(Families, PublishedFiles, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

}  // namespace
