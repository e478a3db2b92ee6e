// engine sample: what is drawn and with which chances, prompts, and the program on a small model of
// a small text.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint.h"
#include "tests/io/tokenizer/tokenizer_text.h"
#include "tests/support/command_words.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/commands/predict/token_sampling.h"
#include "tools/report/output/exit_codes.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using tools::sample_token;

TEST(SamplingOptions, TemperatureZeroTakesTheFirstOfTheLargest) {
  const double logits[] = {0, 3, -1, 3};
  for (std::uint64_t place = 0; place < 20; ++place)
    EXPECT_EQ(sample_token(logits, {.temperature = 0, .seed = place}, place), 1);
}

TEST(SamplingOptions, ChancesAreThoseOfTheSoftmax) {
  const double logits[] = {0, 1, 2, -std::log(4.0)};
  const auto counts = [&](double temperature, std::int64_t top_k) {
    std::vector<int> count(4);
    for (std::uint64_t place = 0; place < 40'000; ++place)
      ++count[static_cast<std::size_t>(
          sample_token(logits, {.temperature = temperature, .top_k = top_k, .seed = 5}, place))];
    return count;
  };
  for (const double temperature : {0.5, 1.0, 2.0})
    for (const std::int64_t top_k : {std::int64_t{0}, std::int64_t{2}, std::int64_t{100}}) {
      const std::vector<int> found = counts(temperature, top_k);
      double sum = 0;
      std::vector<double> chance(4);
      for (std::size_t i = 0; i < 4; ++i)
        sum += chance[i] = top_k == 2 && logits[i] < 1 ? 0 : std::exp(logits[i] / temperature);
      for (std::size_t i = 0; i < 4; ++i) {
        const double mean = 40'000 * chance[i] / sum,
                     deviation = std::sqrt(mean * (1 - chance[i] / sum));
        EXPECT_LE(std::abs(found[i] - mean), 4.5 * deviation)
            << "token " << i << " at " << temperature << ", top " << top_k;
      }
    }
}

TEST(SamplingOptions, TopKKeepsEqualsAndTopOneIsTheLargest) {
  const double logits[] = {1, 5, 1, 1};
  std::vector<int> count(4);
  for (std::uint64_t place = 0; place < 2000; ++place) {
    EXPECT_EQ(sample_token(logits, {.temperature = 9, .top_k = 1}, place), 1);
    ++count[static_cast<std::size_t>(sample_token(logits, {.temperature = 9, .top_k = 2}, place))];
  }
  for (const int c : count) EXPECT_GT(c, 0);
}

TEST(SamplingOptions, TopPKeepsTheFewestTokensOfThisProbability) {
  const double logits[] = {std::log(0.1), std::log(0.5), std::log(0.25), std::log(0.15)};
  const auto kept = [&](double top_p, std::int64_t top_k, double temperature) {
    std::set<std::int32_t> tokens;
    for (std::uint64_t place = 0; place < 2000; ++place)
      tokens.insert(sample_token(
          logits, {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = 3}, place));
    return tokens;
  };
  EXPECT_EQ(kept(1, 0, 1), (std::set<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept(0.8, 0, 1), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(kept(0.7, 0, 1), (std::set<std::int32_t>{1, 2}));
  EXPECT_EQ(kept(0.4, 0, 1), (std::set<std::int32_t>{1}));
  EXPECT_EQ(kept(0, 0, 1), (std::set<std::int32_t>{1}));
  // Of two tokens, the first has 2/3; of a flat distribution, all are needed.
  EXPECT_EQ(kept(0.6, 2, 1), (std::set<std::int32_t>{1}));
  EXPECT_EQ(kept(0.8, 0, 1000), (std::set<std::int32_t>{0, 1, 2, 3}));
}

TEST(SamplingOptions, SeedAndPlaceDecide) {
  const std::vector<double> logits(50, 0.0);
  const auto draw = [&](std::uint64_t seed) {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t place = 0; place < 30; ++place)
      tokens.push_back(sample_token(logits, {.seed = seed}, place));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  const auto tokens = draw(1);
  EXPECT_GT(std::set<std::int32_t>(tokens.begin(), tokens.end()).size(), 10u);
}

TEST(SamplingOptions, WhatIsNoNumberIsRefused) {
  const double nan[] = {0, std::nan("")}, infinite[] = {0, std::numeric_limits<double>::infinity()};
  EXPECT_THROW(sample_token(nan, {}, 0), io::DataError);
  EXPECT_THROW(sample_token(infinite, {.temperature = 0}, 0), io::DataError);
}

TEST(TokenIds, KnownBytesAndUnknownCharacters) {
  EXPECT_EQ(tools::token_ids("cab", "abc"), (std::vector<std::int32_t>{2, 0, 1}));
  EXPECT_EQ(tools::token_ids("\xc3\xa9", "a\xa9\xc3"), (std::vector<std::int32_t>{2, 1}));
  const std::string refused = test_support::error_of<tools::UsageError>(
      [] { tools::token_ids("a\xe2\x82\xac\n?z\xff?", "abc"); });
  EXPECT_VALUES(refused, "prompt 3");
  EXPECT_TRUE(refused.ends_with(": '?' 'z' '\xe2\x82\xac' \\x0a \\xff")) << refused;
}

class Sample : public testing::Test {
 protected:
  static CommandResult engine(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), test_support::engine_binary());
    return test_support::run_command(arguments);
  }
  static CommandResult sample(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "sample");
    return engine(arguments);
  }

  static void SetUpTestSuite() {
    folder_ = new test_support::TemporaryDirectory;
    std::string text;
    for (int i = 0; i < 300; ++i) text += "abcdefgh ";
    test_support::write_text(*folder_ / "alphabet.txt", text);
    expect_success(
        call("train --model gpt-nano --dataset text --data-dir", *folder_ / "alphabet.txt",
             "--context 16 --batch-size 8 --steps 40 --optimizer adamw --lr 0.003 --threads 1 "
             "--save-dir",
             *folder_ / "run"));
    checkpoint_ = *folder_ / "run/step-00000040.ckpt";
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static inline test_support::TemporaryDirectory* folder_ = nullptr;
  static inline std::string checkpoint_;
};

TEST_F(Sample, TheCheckpointKeepsTheVocabulary) {
  EXPECT_EQ(io::load_checkpoint(checkpoint_).vocabulary, " abcdefgh");
}

TEST_F(Sample, GoesOnFromThePromptBeyondTheContext) {
  const CommandResult result =
      expect_success(sample({checkpoint_, "--prompt", "abcd", "-n", "50", "--temperature", "0"}));
  EXPECT_EQ(result.out, "abcdefgh abcdefgh abcdefgh abcdefgh abcdefgh abcdefgh \n");
}

TEST_F(Sample, TheSeedDecides) {
  const auto text = [&](const std::string& seed) {
    return sample({checkpoint_, "--prompt", "a", "-n", "60", "--temperature", "3", "--seed", seed,
                   "--threads", "1"})
        .out;
  };
  const std::string one = text("1");
  EXPECT_EQ(one.size(), 62u);
  EXPECT_EQ(one, text("1"));
  EXPECT_NE(one, text("2"));
  EXPECT_EQ(sample({checkpoint_, "--prompt", "a", "-n", "0"}).out, "a\n");
  EXPECT_EQ(
      sample({checkpoint_, "--prompt", "abc", "-n", "6", "--temperature", "3", "--top-k", "1"}).out,
      "abcdefgh \n");
}

TEST_F(Sample, ImportedWeightsSampleTheSame) {
  expect_success(call("export", checkpoint_, "-o", *folder_ / "m.safetensors"));
  expect_success(engine({"import", *folder_ / "m.safetensors", "-o", *folder_ / "i.ckpt", "--model",
                         "gpt-nano", "--dataset", "text", "--data-dir", *folder_ / "alphabet.txt",
                         "--context", "16"}));
  const std::vector<std::string> options = argv("--prompt abc -n 40 --temperature 2 --seed 9");
  std::vector<std::string> a{checkpoint_}, b{*folder_ / "i.ckpt"};
  a.insert(a.end(), options.begin(), options.end());
  b.insert(b.end(), options.begin(), options.end());
  EXPECT_EQ(sample(a).out, sample(b).out);
}

TEST_F(Sample, ResumingOnAnotherTextIsRefused) {
  test_support::write_text(*folder_ / "other.txt",
                           test_support::read_text(*folder_ / "alphabet.txt").replace(3, 1, "x"));
  const std::vector<std::string> same = argv(
      "train --model gpt-nano --dataset text --context 16 --batch-size 8 --steps 41 --optimizer "
      "adamw --lr 0.003 --threads 1 --resume",
      checkpoint_);
  std::vector<std::string> other = same;
  other.insert(other.end(), {"--data-dir", *folder_ / "other.txt"});
  const CommandResult result = engine(other);
  EXPECT_EQ(result.exit_code, 78) << result.err;
  EXPECT_VALUES(result.err, "trained other data");
  // If it is asked for, ids mean what they meant: the checkpoint's vocabulary stays.
  other.insert(other.end(), {"--allow-change", "data", "--save-dir", *folder_ / "on"});
  const CommandResult on = expect_success(engine(other));
  EXPECT_CONTAINS(on.err, " bytes are characters that the model lacks: 'x'");
}

TEST_F(Sample, Refusals) {
  const auto expect_error = [&](const CommandResult& result, int code, const std::string& words) {
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_VALUES(result.err, words);
  };
  expect_error(sample({checkpoint_, "--prompt", "abz!"}), 2, "'!' 'z'");
  expect_error(sample({checkpoint_, "--prompt", "\u201cabc\u201d"}), 2,
               "'\u201c' '\u201d'");  // not taken for a slip
  expect_error(sample({checkpoint_, "--prompt", "--a"}), 2, "'-'");
  expect_error(sample({checkpoint_, "--prompt", ""}), 2, "--prompt is empty");
  expect_error(sample({checkpoint_}), 2, "--prompt");
  expect_error(sample({checkpoint_, "--prompt", "a", "--temperature", "-1"}), 2, "--temperature");
  expect_error(sample({checkpoint_, "--prompt", "a", "--temperature", "inf"}), 2, "--temperature");
  expect_error(sample({checkpoint_, "--prompt", "a", "-n", "-1"}), 2, "-1");
  expect_error(sample({*folder_ / "none.ckpt", "--prompt", "a"}), 65, "cannot open");
  expect_success(
      call("train --model mlp --dataset synthetic --synthetic-size 20 --batch-size 10 "
           "--steps 1 --threads 1 --save-dir",
           *folder_ / "images"));
  expect_error(sample({*folder_ / "images/step-00000001.ckpt", "--prompt", "a"}), 65,
               "does not read text");
  expect_error(sample({checkpoint_, "--prompt", "a", "--top-p", "1.5"}), 2, "--top-p");
  expect_error(sample({checkpoint_, "--prompt", "a", "--prompt-ids", "1"}), 2, "--prompt");
  expect_error(sample({checkpoint_, "--prompt-ids", "1,9"}), 2, "--prompt-ids '1,9': 0 8");
  expect_error(sample({checkpoint_, "--prompt-ids", "1,"}), 2, "--prompt-ids '1,'");
  expect_error(sample({checkpoint_, "--prompt", "a", "--tokenizer", "t.json"}), 2,
               "--tokenizer characters");
  test_support::write_text(*folder_ / "empty.txt", "");
  expect_error(sample({checkpoint_, "--prompts", *folder_ / "empty.txt"}), 65,
               "empty.txt: no prompt, line");
  test_support::write_text(*folder_ / "empty.txt",
                           "\xEF\xBB\xBF"
                           "a\n\n");
  expect_error(sample({checkpoint_, "--prompts", *folder_ / "empty.txt"}), 65,
               "empty.txt:2: the line is empty");
}

TEST_F(Sample, WeightsInBf16ContinueTheTextInFloat32) {
  const std::vector<std::string> words{checkpoint_, "--prompt",      "abcd", "-n",
                                       "50",        "--temperature", "0",    "--weight-dtype"};
  const auto sampled = [&](const std::string& dtype) {
    std::vector<std::string> all = words;
    all.push_back(dtype);
    return sample(all);
  };
  const std::string text = "abcdefgh abcdefgh abcdefgh abcdefgh abcdefgh abcdefgh \n";
  EXPECT_EQ(expect_success(sampled("bf16")).out, text);
  EXPECT_EQ(expect_success(sampled("f32")).out, text);
  EXPECT_EQ(sampled("f16").exit_code, 2);
  const CommandResult on_device =
      sample({checkpoint_, "--prompt", "a", "--weight-dtype", "bf16", "--device", "cuda"});
  EXPECT_EQ(on_device.exit_code, 78);
  EXPECT_EQ(on_device.out, "");
  expect_success(call("train --model gpt-nano --dataset text --data-dir", *folder_ / "alphabet.txt",
                      "--context 16 --batch-size 8 --steps 1 --dtype f64 --threads 1 --save-dir",
                      *folder_ / "wide"));
  const CommandResult wide =
      sample({*folder_ / "wide/step-00000001.ckpt", "--prompt", "a", "--weight-dtype", "bf16"});
  EXPECT_EQ(wide.exit_code, 78);
  EXPECT_CONTAINS(wide.err, "needs a model in float32");
}

TEST_F(Sample, SeveralTextsAreWhatEachIsAloneWithItsSeed) {
  const std::vector<std::string> prompts{"a",  "bcd",      "h a", "cab",   "fgh a", "e",
                                         "dd", "abcdefgh", "h",   "b b b", "g"};
  std::string lines, expected;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    lines += prompts[i] + "\n";
    expected += (i > 0 ? "---\n" : "") +
                sample({checkpoint_, "--prompt", prompts[i], "-n", "30", "--temperature", "2",
                        "--top-p", "0.95", "--seed", std::to_string(7 + i), "--threads", "1"})
                    .out;
  }
  test_support::write_text(*folder_ / "prompts.txt", lines);
  const CommandResult batched = expect_success(
      sample({checkpoint_, "--prompts", *folder_ / "prompts.txt", "-n", "30", "--temperature", "2",
              "--top-p", "0.95", "--seed", "7", "--threads", "2"}));
  EXPECT_EQ(batched.out, expected);
  const CommandResult two = sample({checkpoint_, "--prompt", "a", "--prompt", "bcd", "-n", "30",
                                    "--temperature", "2", "--top-p", "0.95", "--seed", "7"});
  EXPECT_EQ(two.out, expected.substr(0, two.out.size()));
  EXPECT_GT(two.out.size(), 60u);
}

TEST_F(Sample, IdsOfCharactersAreTheirPlacesInTheVocabulary) {
  const CommandResult result = expect_success(
      sample({checkpoint_, "--prompt-ids", "1,2,3", "-n", "4", "--temperature", "0"}));
  EXPECT_EQ(result.out, "1,2,3,4,5,6,7\n");
}

// A model of tokens: "hell", the bytes of an accented e, " w", "or" and the end of the text.
class SampleTokens : public Sample {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test_support::TemporaryDirectory;
    test_support::write_text(
        *folder_ / "tokenizer.json",
        tokenizer_text::tokenizer_json(
            {.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})",
             .added =
                 R"({"id":262,"content":"<|endoftext|>","special":true,"normalized":false})"}));
    std::string text;
    for (int i = 0; i < 300; ++i) text += "hell\xC3\xA9 wor<|endoftext|>";
    test_support::write_text(*folder_ / "a.txt", text);
    expect_success(call("tokenize --tokenizer", *folder_ / "tokenizer.json", "-o",
                        *folder_ / "data", "--val", *folder_ / "a.txt", *folder_ / "a.txt"));
    expect_success(
        call("train --model gpt-nano --dataset tokens --vocabulary-size 270 --context 16 "
             "--batch-size 8 --steps 40 --optimizer adamw --lr 0.003 --threads 1 --data-dir",
             *folder_ / "data", "--save-dir", *folder_ / "run"));
    checkpoint_ = *folder_ / "run/step-00000040.ckpt";
  }
};

TEST_F(SampleTokens, TheCheckpointHasTheTokenizerOfTheData) {
  EXPECT_EQ(io::load_checkpoint(checkpoint_).tokenizer,
            test_support::read_text(*folder_ / "tokenizer.json"));
  EXPECT_CONTAINS(expect_success(engine({"inspect", checkpoint_})).out, "tokenizer.json of ");
}

TEST_F(SampleTokens, TextsEndAtTheEndOfTextUnlessItIsIgnored) {
  const auto text = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {checkpoint_, "--temperature", "0"});
    return expect_success(sample(more)).out;
  };
  EXPECT_EQ(text({"--prompt", "hell"}), "hell\xC3\xA9 wor\n");
  EXPECT_EQ(text({"--prompt", "hell", "--ignore-end", "-n", "11"}),
            "hell\xC3\xA9 wor<|endoftext|>hell\xC3\xA9 wor<|endoftext|>\n");
  EXPECT_EQ(text({"--prompt", "hell", "-n", "2"}), "hell\xC3\xA9\n");
  EXPECT_EQ(text({"--prompt", "hell", "-n", "1"}), "hell\xEF\xBF\xBD\n") << "half a character";
  EXPECT_EQ(text({"--prompt-ids", "258"}), "258,195,169,260,261\n");
  EXPECT_EQ(text({"--prompt-ids", "258", "--ignore-end", "-n", "6"}),
            "258,195,169,260,261,262,258\n");
}

TEST_F(SampleTokens, OnlyTokensOfTheTokenizerAreDrawn) {
  const CommandResult result =
      expect_success(sample({checkpoint_, "--prompt", "hell", "-n", "300", "--temperature", "1000",
                             "--ignore-end", "--seed", "4"}));
  EXPECT_GT(result.out.size(), 300u);
}

TEST_F(SampleTokens, WithoutATokenizerOneIsNamedOrIdsAreGiven) {
  io::Checkpoint checkpoint = io::load_checkpoint(checkpoint_);
  checkpoint.tokenizer.clear();
  const std::string bare = *folder_ / "bare.ckpt";
  io::save_checkpoint(checkpoint, bare);
  const CommandResult refused = sample({bare, "--prompt", "hell"});
  EXPECT_EQ(refused.exit_code, 78) << refused.err;
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  EXPECT_VALUES(refused.err, "--tokenizer FILE --prompt-ids 1,2,3");
  EXPECT_EQ(expect_success(sample({bare, "--prompt", "hell", "--temperature", "0", "--tokenizer",
                                   *folder_ / "tokenizer.json"}))
                .out,
            "hell\xC3\xA9 wor\n");
  EXPECT_EQ(
      expect_success(sample({bare, "--prompt-ids", "258", "--temperature", "0", "-n", "4"})).out,
      "258,195,169,260,261\n");
  checkpoint.tokenizer = "{}";
  io::save_checkpoint(checkpoint, bare);
  const CommandResult damaged = sample({bare, "--prompt", "hell"});
  EXPECT_EQ(damaged.exit_code, 65);
  EXPECT_CONTAINS(damaged.err, "bare.ckpt: its tokenizer");
}

// The vocabulary is that of the ids in the data, 263.
TEST_F(SampleTokens, ImportedWeightsSampleTheSame) {
  expect_success(
      call("train --model gpt-nano --dataset tokens --context 16 --batch-size 8 "
           "--steps 1 --threads 1 --data-dir",
           *folder_ / "data", "--save-dir", *folder_ / "small"));
  const std::string weights = *folder_ / "w.safetensors", imported = *folder_ / "i.ckpt";
  expect_success(call("export", *folder_ / "small", "-o", weights));
  expect_success(call("import", weights, "-o", imported,
                      "--model gpt-nano --dataset tokens --context 16 --data-dir",
                      *folder_ / "data"));
  const auto sampled = [](const std::string& path) {
    return expect_success(call("sample", path, "--prompt hell -n 20 --temperature 2 --ignore-end"))
        .out;
  };
  EXPECT_EQ(sampled(imported), sampled(*folder_ / "small"));
}

// The built-in model's default size: 64 positions of 65 tokens, which have no text.
TEST_F(Sample, ImportsWithoutDataContinueIds) {
  expect_success(
      call("train --model gpt-nano --dataset synthetic --synthetic-shape 64 "
           "--synthetic-classes 65 --synthetic-size 8 --batch-size 4 --steps 1 "
           "--threads 1 --save-dir",
           *folder_ / "ids"));
  const std::string weights = *folder_ / "ids.safetensors", imported = *folder_ / "ids.ckpt";
  expect_success(call("export", *folder_ / "ids", "-o", weights));
  expect_success(call("import", weights, "-o", imported, "--model gpt-nano"));
  const auto sampled = [](const std::string& path) {
    return expect_success(call("sample", path, "--prompt-ids 1,2,3 -n 70 --temperature 0")).out;
  };
  EXPECT_EQ(sampled(imported), sampled(*folder_ / "ids"));
  const CommandResult text = sample({imported, "--prompt", "a"});
  EXPECT_EQ(text.exit_code, 78);
  EXPECT_VALUES(text.err, imported + ": 'gpt-nano' no tokenizer: --tokenizer FILE, --prompt-ids");
}

}  // namespace
