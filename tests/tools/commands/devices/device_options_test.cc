// Every option of `engine train` on the emulated CUDA device: what docs/gpu.md says works starts
// and trains, and what it says is rejected is rejected in one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/ops/common/bf16_dispatch.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/numpy/npz.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/test_support.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/options/manual/device_table.h"
#include "tools/options/table/option_table.h"

namespace {

using test_support::CommandResult;
using test_support::split_words;
using test_support::TemporaryDirectory;
using tools::DeviceLimit;
using tools::OptionSpec;

TEST(DeviceTable, IsThatOfTheDocumentation) {
  const std::string page =
                        test_support::read_text(test_support::source_directory() + "/docs/gpu.md"),
                    table = tools::device_table();
  EXPECT_NE(page.find("<!-- printed by: engine manual --devices -->\n" + table), std::string::npos)
      << "docs/gpu.md lacks this table, which `engine manual --devices` prints:\n"
      << table;
}

// Replacements for the examples of options: smaller, with files that exist, or without other hosts.
// DIR is a folder with the files of write_files().
const std::map<std::string, std::string> kInstead{
    {"allow-mismatch", "--init-from DIR/weights --allow-mismatch layers.2.*"},
    {"annotations", "--dataset csv --annotations DIR/rows.csv"},
    {"batch-size-per-device", "--batch-size-per-device 8"},
    {"average-last", "--epochs 2 --average-last 2"},
    {"columns", "--dataset csv --annotations DIR/rows.csv --columns age,income"},
    {"context", "--dataset text --data-dir DIR --context 8"},
    {"csv-decimal", "--dataset csv --annotations DIR/rows.csv --csv-decimal point"},
    {"csv-header", "--dataset csv --annotations DIR/rows.csv --csv-header yes"},
    {"csv-missing", "--dataset csv --annotations DIR/rows.csv --csv-missing auto,-999"},
    {"data-dir", "--dataset text --data-dir DIR --context 8"},
    {"dataset", "--dataset csv --annotations DIR/rows.csv"},
    {"device", "--device cuda:1"},
    {"devices", "--devices cuda:0,cuda:1"},
    {"dropout", "--model gpt-nano --dropout 0.1 --synthetic-shape 8"},
    {"dtype", "--dtype f32"},
    {"early-stop", "--early-stop 5 --eval-every 1"},
    {"elastic", "--spawn 2 --elastic"},
    {"elastic-batch", "--spawn 2 --elastic 1:2 --elastic-batch scale"},
    {"epochs", "--epochs 1"},
    {"freeze", "--freeze layers.0.*"},
    {"iface", "--iface lo"},
    {"ignore-columns", "--dataset csv --annotations DIR/rows.csv --ignore-columns id"},
    {"image-cache-mb", "--dataset images --data-dir DIR/images --image-size 8 --image-cache-mb 1"},
    {"image-size", "--dataset images --data-dir DIR/images --image-size 8"},
    {"init-coding", "--init-from DIR/weights --init-coding inputs"},
    {"init-from", "--init-from DIR/weights"},
    {"init-method", "--rank 0 --world-size 1 --init-method file:///DIR/meeting"},
    {"keep-best", "--save-dir run --keep-best loss --eval-every 1"},
    {"ignore-id",
     "--dataset arrays --data-dir DIR/arrays --ignore-id 255 --model DIR/arrays/map.toml "
     "--class-weights 0.5,2"},
    {"label-column", "--dataset csv --annotations DIR/rows.csv --label-column kind"},
    {"local-rank", "--rank 0 --world-size 1 --local-rank 0"},
    {"loss",
     "--dataset csv --annotations DIR/rows.csv --label-column income --task regression --loss mae"},
    {"lr-group", "--lr-group layers.2.*=10x"},
    {"lr-scale", "--spawn 2 --lr-scale linear"},
    {"model", "--model convnet --synthetic-shape 8x8x1"},
    {"prometheus", "--prometheus 0"},
    {"rank", "--rank 0 --world-size 1"},
    {"reduction-order", "--reduction-order fast"},
    {"relay", "--spawn 2 --relay rank0:PORT"},
    {"separator", "--dataset csv --annotations DIR/rows.csv --separator ,"},
    {"shard-optimizer", "--spawn 2 --shard-optimizer"},
    {"spawn", "--spawn 2"},
    {"steps", "--steps 3"},
    {"stage", "--dataset text --data-dir DIR --context 8 --stage DIR/stage"},
    {"sync-fragments", "--sync streaming --sync-fragments 2"},
    {"synthetic-shape", "--synthetic-shape 5x4x3"},
    {"synthetic-size", "--synthetic-size 50"},
    {"task", "--dataset csv --annotations DIR/rows.csv --label-column income --task regression"},
    {"test-share", "--dataset csv --annotations DIR/rows.csv --test-share 0.1"},
    {"text-stride", "--dataset text --data-dir DIR --context 8 --text-stride 1"},
    {"token-bits", "--dataset tokens --data-dir DIR/tokens --context 8 --token-bits 16"},
    {"tensorboard-dir", "--tensorboard-dir DIR/events"},
    {"vocabulary-size", "--dataset tokens --data-dir DIR/tokens --context 8 --vocabulary-size 40"},
    {"world-size", "--rank 0 --world-size 1"}};

// Returns true for an option that needs what a test on the emulated device does not have.
bool is_left_out(const OptionSpec& option) {
#ifndef HAS_PNG
  if (option.name.starts_with("image-")) return true;
#endif
  return option.name == "reduction-shards" || option.name == "requeue";  // canonical order, SLURM
}

// Four pixels.
constexpr unsigned char kPng[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x02, 0x08, 0x02, 0x00, 0x00, 0x00, 0xfd,
    0xd4, 0x9a, 0x73, 0x00, 0x00, 0x00, 0x10, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0xe0,
    0x3a, 0x21, 0x07, 0x44, 0x0c, 0x10, 0x0a, 0x00, 0x19, 0xfe, 0x03, 0xc1, 0x43, 0x31, 0xb0,
    0xdd, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

// Images of two pixels with a class for each pixel that has a label.
void write_arrays(const std::string& folder) {
  std::filesystem::create_directories(folder);
  io::NamedArray x, y;
  x.name = "x";
  x.type = y.type = io::DType::kU8;
  x.shape = {12, 1, 1, 2};
  y.name = "y";
  y.shape = {12, 1, 2};
  for (int i = 0; i < 24; ++i) {
    x.data.push_back(static_cast<std::byte>(10 * i));
    y.data.push_back(static_cast<std::byte>(i % 3 == 0 ? 255 : i % 2));
  }
  for (const char* part : {"/train.npz", "/test.npz"}) io::save_npz({x, y}, folder + part);
  test_support::write_text(folder + "/map.toml",
                           "[[layer]]\nkind = \"conv2d\"\nname = \"head\"\n"
                           "out_channels = \"classes\"\nkernel = 1\n");
}

void write_files(const TemporaryDirectory& folder) {
  write_arrays(folder / "arrays");
  std::string table = "id,age,income,kind\n", text;
  for (int i = 0; i < 40; ++i) {
    table += std::to_string(i) + "," + std::to_string(20 + i * 7 % 31) + "," +
             std::to_string(900 + i * 37 % 101) + "," + (i % 3 == 0 ? "a" : "b") + "\n";
    text += "line " + std::to_string(i * i) + " of a text\n";
  }
  test_support::write_text(folder / "rows.csv", table);
  test_support::write_text(folder / "input.txt", text);
  std::string tokens;
  for (int i = 0; i < 200; ++i) tokens += {static_cast<char>(i * i % 37), '\0'};
  std::filesystem::create_directories(folder.path() / "tokens");
  for (const char* part : {"tokens/train.bin", "tokens/val.bin"})
    test_support::write_text(folder / part, tokens);
  const std::string png(reinterpret_cast<const char*>(kPng), sizeof kPng);
  for (const char* kind : {"train/a", "train/b", "val/a", "val/b"}) {
    const std::filesystem::path images = folder.path() / "images" / kind;
    std::filesystem::create_directories(images);
    for (const char* image : {"0.png", "1.png"})
      test_support::write_text((images / image).string(), png);
  }
}

class DeviceOptions : public testing::Test {
 protected:
  void SetUp() override {
    const auto gpus = tools::gpu_lines();
    if (gpus.empty() || gpus.front().find("emulated") == std::string::npos)
      GTEST_SKIP() << "needs GPUs whose number can be set";
  }

  // A run of two steps; `more` may name another data set or length.
  static CommandResult train(const std::string& device, const std::vector<std::string>& more) {
    const auto has = [&](const std::string& name) {
      return std::ranges::find(more, name) != more.end();
    };
    std::vector<std::string> arguments =
        test_support::argv("train --model mlp --threads 1 --eval-every 0 --timeout 30");
    if (!has("--batch-size-per-device")) test_support::add_words(arguments, "--batch-size 12");
    if (!has("--dataset") || more[1] == "synthetic")
      test_support::add_words(
          arguments,
          "--dataset synthetic --synthetic-shape 4x4x1 --synthetic-size 48 --synthetic-classes 10");
    if (has("text") || has("tokens"))
      arguments =
          test_support::overridden(arguments, split_words("--model gpt-nano --batch-size 2"));
    if (has("muon"))  // the mlp's matrices take long
      arguments = test_support::overridden(arguments,
                                           split_words("--model convnet --synthetic-shape 8x8x1"));
    if (!has("--epochs") && !has("--steps")) test_support::add_words(arguments, "--steps 2");
    if (!has("--device") && !has("--devices") && !has("--gpu-devices"))
      arguments.insert(arguments.end(), {"--device", device});
    return test_support::engine(test_support::overridden(arguments, more),
                                {{"ENGINE_EMULATED_GPUS", "2"},
                                 {"ENGINE_ALLOW_SHARED_GPU", "1"},
                                 {"ENGINE_NVML_LIBRARY", FAKE_NVML_LIBRARY}});
  }

  static std::vector<std::string> words_of(const std::string& option, std::string words,
                                           const TemporaryDirectory& folder) {
    const std::string own = folder / ("of-" + option);
    std::erase(words, '\'');
    std::vector<std::string> all = split_words(words);
    for (std::string& word : all) {
      if (const auto at = word.find("DIR"); at != std::string::npos)
        word.replace(at, 3, folder.path().string());
      if (const auto at = word.find("PORT"); at != std::string::npos)
        word.replace(at, 4, std::to_string(test_support::free_port()));
      for (const char* file : {"run", "metrics.jsonl", "train.log", "trace.json", "trace.json.gz",
                               "/scratch/flight", "runs/tensorboard"})
        if (word == file)
          word = own + "-" + std::string(file).substr(std::string(file).rfind('/') + 1);
    }
    return all;
  }
};

class DeviceOptionsOfGroup : public DeviceOptions,
                             public testing::WithParamInterface<const char*> {};

TEST_P(DeviceOptionsOfGroup, StartOnTheDevice) {
  const TemporaryDirectory folder;
  write_files(folder);
  test_support::expect_success(train("cuda", {"--save-dir", folder / "weights"}));
  int tried = 0;
  for (const OptionSpec& option : tools::train_options()) {
    if (option.group != GetParam() || is_left_out(option)) continue;
    SCOPED_TRACE(option.name);
    const auto instead = kInstead.find(option.name);
    const CommandResult result = train(
        "cuda", words_of(option.name, instead == kInstead.end() ? option.example : instead->second,
                         folder));
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(Groups, DeviceOptionsOfGroup,
                         testing::Values("run", "compute", "group", "sync", "batch", "optimizer",
                                         "state", "report", "preempt"),
                         [](const auto& p) { return std::string(p.param); });

// Further options that a value requires.
std::vector<std::string> beside(const std::string& option) {
  if (option == "shares") return split_words("--spawn 2");
  if (option == "loss-scale") return split_words("--amp bf16");
  return {};
}

// The values that a limit is about, each as an option with its value.
std::vector<std::vector<std::string>> values_of(const OptionSpec& option,
                                                const DeviceLimit& limit) {
  const std::string name = "--" + option.name;
  std::vector<std::vector<std::string>> all;
  if (limit.own.kind == tools::Condition::Kind::kOneOf) {
    for (const std::string& value : base::split_text(limit.own.choices, '|'))
      all.push_back({name, value});
  } else if (option.type() == OptionSpec::Type::kFlag) {
    all = {{name}, {"--no-" + option.name}};
  } else {
    const std::vector<std::string> words = split_words(option.example);
    all.push_back({name, *(std::ranges::find(words, name) + 1)});
  }
  return all;
}

TEST_F(DeviceOptions, OfTheTableDoWhatItSays) {
  const TemporaryDirectory folder;
  int rejected = 0, accepted = 0;
  for (const OptionSpec& option : tools::train_options())
    for (const DeviceLimit& limit : option.limits)
      for (const std::vector<std::string>& value : values_of(option, limit)) {
        const std::string text = base::join_text(value, " ");
        SCOPED_TRACE(text);
        const bool cpu = limit.kind == DeviceLimit::Kind::kCpu;
        std::vector<std::string> words = beside(option.name);
        words.insert(words.end(), value.begin(), value.end());
        const CommandResult here = train(cpu ? "cpu" : "cuda", words);
        if (limit.rejected) {
          EXPECT_EQ(here.exit_code, 78) << here.out;
          EXPECT_EQ(std::ranges::count(here.err, '\n'), 1) << here.err;
          EXPECT_CONTAINS(here.err,
                          text + " requires --device " + (cpu ? "cuda: " : "cpu: ") + limit.text);
          ++rejected;
        } else if (text != "--amp bf16" || engine::ops::missing_bf16_products().empty()) {
          EXPECT_EQ(here.exit_code, 0) << here.err;
          ++accepted;
        }
        const CommandResult there = train(cpu ? "cuda" : "cpu", words);
        EXPECT_EQ(there.exit_code, 0) << there.err;
      }
  EXPECT_GE(rejected, 5);
  EXPECT_GT(accepted, 4);
}

}  // namespace
