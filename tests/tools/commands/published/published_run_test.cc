// Runs of the program that start from a folder of transformers, as a user meets them.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/tokenizer/tokenizer.h"
#include "tests/io/tokenizer/tokenizer_text.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/published/published_fixture.h"

namespace {

namespace fs = std::filesystem;
using published::token_file;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;

class PublishedRun : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    test_support::write_text(folder_ / "train.npy", token_file(400));
    test_support::write_text(folder_ / "val.npy", token_file(80));
  }
  std::vector<std::string> training(const std::string& run,
                                    const std::vector<std::string>& more) const {
    return test_support::overridden(
        argv("train --dataset tokens --context 6 --batch-size 4 --threads 1 --optimizer adamw --lr "
             "0.001 --model",
             model_, "--data-dir", folder_.path().string(), "--save-dir", folder_ / run),
        more);
  }
  CommandResult train(const std::string& run, const std::vector<std::string>& more) const {
    return test_support::engine(training(run, more));
  }
  void expect_same_arrays(const std::string& a, const std::string& b) const {
    expect_success(call("verify --only all", folder_ / a, folder_ / b));
  }
  // The weights of the two runs, of which the second has made one step that changes nothing.
  void expect_same_weights(const std::string& a, const std::string& b) const {
    expect_success(call("verify --only params --rtol 0 --atol 1e-20", folder_ / a, folder_ / b));
  }

  const test_support::TemporaryDirectory folder_;
  const std::string model_ = published::copy_of("golden_" + GetParam(), folder_);
};

TEST_P(PublishedRun, GoesOnWithoutTheFolderAndIsExported) {
  const CommandResult begun = expect_success(train("whole", argv("--steps 6")));
  EXPECT_CONTAINS(begun.out + begun.err, "weights from " + model_);
  expect_success(train("part", argv("--steps 3")));
  EXPECT_CONTAINS(expect_success(call("eval", model_, "--dataset tokens --context 6 --data-dir",
                                      folder_.path().string()))
                      .out,
                  "loss");
  fs::remove_all(model_);
  expect_success(call("train --resume", folder_ / "part", "--steps 6"));
  expect_same_arrays("whole/step-00000006.ckpt", "part/step-00000006.ckpt");
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "part")).out, "loss");
  const CommandResult written =
      expect_success(call("export", folder_ / "part", "--format hf -o", folder_ / "hub/new"));
  EXPECT_CONTAINS(written.out, " as " + GetParam() + ", ");
  const std::vector<std::string> again = argv("--steps 1 --lr 1e-30 --weight-decay 0 --model");
  std::vector<std::string> from = again;
  from.push_back(folder_ / "hub/new");
  expect_success(train("again", from));
  expect_same_weights("part/step-00000006.ckpt", "again/step-00000001.ckpt");
}

TEST_P(PublishedRun, TwoRanksHaveTheBitsOfOne) {
  const auto exact = argv("--steps 4 --reduction-order canonical");
  expect_success(train("one", exact));
  expect_success(train("two", test_support::overridden(exact, argv("--spawn 2"))));
  expect_same_arrays("one/step-00000004.ckpt", "two/step-00000004.ckpt");
}
INSTANTIATE_TEST_SUITE_P(Families, PublishedRun, testing::Values("gpt2", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

class PublishedFolderErrors : public PublishedRun {
 protected:
  // Without the notice of dropout.
  void SetUp() override {
    PublishedRun::SetUp();
    std::string config = test_support::read_text(model_ + "/config.json");
    for (std::size_t at; (at = config.find("pdrop\": 0.1")) != std::string::npos;)
      config.replace(at, 11, "pdrop\": 0.0");
    test_support::write_text(model_ + "/config.json", config);
  }
};

TEST_P(PublishedFolderErrors, AreOneLine) {
  const std::string config = model_ + "/config.json";
  const std::string text = test_support::read_text(config);
  std::string other = text;
  other.replace(other.find("\"gpt2\""), 6, "\"gpt5\"");
  test_support::write_text(config, other);
  program::expect_error(train("a", argv("--steps 1")), 78,
                        config + ": 'model_type' is \"gpt5\"; supported: gpt2, ");
  test_support::write_text(config, text);
  program::expect_error(test_support::engine(test_support::overridden(
                            training("b", argv("--steps 1")), argv("--vocabulary-size 12"))),
                        78, "expected shape [6, 12] (the classes), got [6, 13]");
  fs::resize_file(model_ + "/model.safetensors", 3000);
  program::expect_error(train("c", argv("--steps 1")), 65, model_ + "/model.safetensors: '");
  fs::remove(model_ + "/model.safetensors");
  program::expect_error(train("d", argv("--steps 1 --spawn 2")), 65,
                        model_ + ": has no weights; expected model.safetensors");
}

// A run's folder with config.json would be taken for a model.
TEST_P(PublishedFolderErrors, ARunAndAModelDoNotShareAFolder) {
  expect_success(train("run", argv("--steps 1")));
  program::expect_error(call("export", folder_ / "run", "--format hf -o", folder_ / "run"), 73,
                        folder_ / "run" + " folder run");
  program::expect_error(test_support::engine(test_support::overridden(
                            training("run", argv("--steps 1")), argv("--save-dir", model_))),
                        73, model_ + ": published --save-dir");
  fs::copy(model_ + "/config.json", folder_ / "run/config.json");  // whoever has written it
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "run")).out, "loss");
}

TEST_P(PublishedFolderErrors, ATokenizerOfMoreTokensIsNamed) {
  // Without a regular expression, so that it runs without PCRE2, too.
  const std::string tokenizer = tokenizer_text::tokenizer_json(
      {.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"});
  test_support::write_text(model_ + "/tokenizer.json", tokenizer);
  const std::string fault = "/tokenizer.json " +
                            std::to_string(io::Tokenizer::parse(tokenizer, "").size()) +
                            " tokens 13";
  program::expect_error(train("a", argv("--steps 1")), 78, model_ + fault);
  fs::rename(model_ + "/tokenizer.json", folder_ / "tokenizer.json");
  program::expect_error(train("a", argv("--steps 1")), 78, folder_.path().string() + fault);
}
INSTANTIATE_TEST_SUITE_P(OfGpt2, PublishedFolderErrors, testing::Values("gpt2"),
                         [](const auto& test) { return test.param; });

// A published text model that a test makes: a gpt-nano of as many tokens as its tokenizer has.
class PublishedText : public testing::Test {
 protected:
  void SetUp() override {
    const auto tokens = std::to_string(io::Tokenizer::parse(tokenizer_, "").size());
    expect_success(test_support::engine(program::quick_train(
        argv("--model gpt-nano --synthetic-shape 12 --steps 1 --synthetic-classes", tokens,
             "--save-dir", folder_ / "own"))));
    expect_success(call("export", folder_ / "own", "--format hf -o", model_));
    fs::create_directory(folder_ / "data");
    test_support::write_text(folder_ / "data/train.npy", token_file(400));
    test_support::write_text(folder_ / "data/val.npy", token_file(80));
  }
  CommandResult train(const std::vector<std::string>& more) const {
    return test_support::engine(test_support::overridden(
        argv("train --dataset tokens --context 6 --batch-size 4 --threads 1 --steps 1 --lr 1e-30 "
             "--model",
             model_, "--data-dir", folder_ / "data", "--save-dir", folder_ / "run"),
        more));
  }
  // Three tokens after a prompt.
  static CommandResult sample(const std::string& of, const std::string& prompt) {
    return call("sample", of, "--temperature 0 --threads 1 -n 3", prompt);
  }

  const test_support::TemporaryDirectory folder_;
  const std::string model_ = folder_ / "hub";
  // Without a regular expression, so that it runs without PCRE2, too.
  const std::string tokenizer_ = tokenizer_text::tokenizer_json(
      {.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
                        R"("use_regex":false})",
       .added = R"({"id":262,"content":"<|endoftext|>","single_word":false,"lstrip":false,)"
                R"("rstrip":false,"normalized":false,"special":true})"});
};

TEST_F(PublishedText, IsSampledBeforeAndAfterTraining) {
  program::expect_error(sample(model_, "--prompt=hello"), 78, "has no tokenizer");
  test_support::write_text(model_ + "/tokenizer.json", tokenizer_);
  const std::string text = expect_success(sample(model_, "--prompt=hello")).out;
  const std::string ids = expect_success(sample(model_, "--prompt-ids=104,101")).out;
  expect_success(train({}));
  EXPECT_EQ(expect_success(sample(folder_ / "run", "--prompt=hello")).out, text);
  fs::remove_all(model_);
  expect_success(call("train --steps 2 --resume", folder_ / "run"));
  EXPECT_EQ(expect_success(sample(folder_ / "run/step-00000002.ckpt", "--prompt=hello")).out, text);
  EXPECT_EQ(expect_success(sample(folder_ / "run", "--prompt-ids=104,101")).out, ids);
}

TEST_F(PublishedText, EndsWithATokenOfItsConfig) {
  const std::string ids = expect_success(sample(model_, "--prompt-ids=104,101")).out;
  const std::string first = ids.substr(8, ids.find(',', 8) - 8);
  std::string config = test_support::read_text(model_ + "/config.json");
  config.replace(config.find("\"eos_token_id\": null"), 20, "\"eos_token_id\": [7, " + first + "]");
  test_support::write_text(model_ + "/config.json", config);
  EXPECT_EQ(expect_success(sample(model_, "--prompt-ids=104,101")).out, "104,101\n");
  EXPECT_EQ(expect_success(
                call("sample --ignore-end --temperature 0 -n 3", model_, "--prompt-ids=104,101"))
                .out,
            ids);
}

// transformers does the same: its models were trained with this token before each text.
TEST_F(PublishedText, PromptsHaveTheTokensThatTheTokenizerAdds) {
  const std::string begin = "\"post_processor\":null";
  std::string framed = tokenizer_;
  framed.replace(framed.find(begin), begin.size(),
                 R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":)"
                 R"({"id":"h","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)"
                 R"("special_tokens":{"h":{"id":"h","ids":[104],"tokens":["h"]}}})");
  test_support::write_text(model_ + "/tokenizer.json", framed);
  test_support::write_text(folder_ / "data/tokenizer.json", framed);
  const auto expect_framed = [&](const std::string& of) {
    const std::string ids = expect_success(sample(of, "--prompt-ids=104,259")).out;
    std::vector<std::int32_t> added;
    for (std::size_t at = std::string("104,259").size(); at + 1 < ids.size();
         at = ids.find_first_of(",\n", at + 1))
      added.push_back(std::stoi(ids.substr(at + 1)));
    ASSERT_EQ(added.size(), 3u) << ids;
    std::string text = "hello";
    const io::Tokenizer tokenizer = io::Tokenizer::parse(framed, "");
    io::TokenDecoder texts(tokenizer);
    for (const std::int32_t id : added) text += texts.add(id);
    EXPECT_EQ(expect_success(sample(of, "--prompt=hello")).out, text + texts.finish() + "\n");
  };
  expect_framed(model_);
  expect_success(train({}));
  expect_framed(folder_ / "run");
  // A model that has only been trained here knows no such token.
  expect_success(train(argv("--model gpt-nano --vocabulary-size 263 --save-dir", folder_ / "new")));
  const std::string plain =
      expect_success(call("sample --tokenizer", model_, "--temperature 0 --threads 1 -n 3",
                          folder_ / "new", "--prompt=hello"))
          .out;
  test_support::write_text(folder_ / "plain.json", tokenizer_);
  EXPECT_EQ(
      expect_success(call("sample --tokenizer", folder_ / "plain.json",
                          "--temperature 0 --threads 1 -n 3", folder_ / "new", "--prompt=hello"))
          .out,
      plain);
}

TEST_F(PublishedText, EndsWithATokenOfItsGenerationConfig) {
  const std::string ids = expect_success(sample(model_, "--prompt-ids=104,101")).out;
  const std::string first = ids.substr(8, ids.find(',', 8) - 8);
  test_support::write_text(model_ + "/generation_config.json",
                           "{\"eos_token_id\": [7, " + first + "]}");
  EXPECT_EQ(expect_success(sample(model_, "--prompt-ids=104,101")).out, "104,101\n");
  expect_success(train({}));
  EXPECT_EQ(expect_success(sample(folder_ / "run", "--prompt-ids=104,101")).out, "104,101\n");
  test_support::write_text(model_ + "/generation_config.json", "[");
  program::expect_error(sample(model_, "--prompt-ids=104,101"), 78,
                        model_ + "/generation_config.json: not JSON");
}

TEST_F(PublishedText, ATokenizerOfMoreTokensIsNamedBeforeThePrompt) {
  tokenizer_text::Parts more{
      .pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"};
  more.added += R"(,{"id":263,"content":"<|user|>"})";
  const std::string large = folder_ / "large.json";
  test_support::write_text(large, tokenizer_text::tokenizer_json(more));
  const CommandResult sampled = call("sample --tokenizer", large, "-n 3", model_, "--prompt=hello");
  program::expect_error(sampled, 78, large + " 264 tokens; 263");
  EXPECT_EQ(sampled.out, "");
}

// Their ids are other texts than the model's.
TEST_F(PublishedText, TokensOfAnotherTokenizerAreAWarning) {
  tokenizer_text::Parts others{
      .pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"};
  others.merges[3] = {"hell", "s"};
  const std::string own = model_ + "/tokenizer.json", data = folder_ / "data/tokenizer.json";
  test_support::write_text(own, tokenizer_);
  test_support::write_text(data, tokenizer_);
  const auto evaluate = [&](const std::string& of) {
    return expect_success(
               call("eval", of, "--dataset tokens --context 6 --data-dir", folder_ / "data"))
        .err;
  };
  const std::string warning = data + ": token 259 'hells', ";
  const auto expect_none = [&](const std::string& text) {
    EXPECT_EQ(text.find("in the tokenizer of"), std::string::npos) << text;
  };
  expect_none(expect_success(train({})).err);
  expect_none(evaluate(model_));
  test_support::write_text(data, tokenizer_text::tokenizer_json(others));
  EXPECT_VALUES(evaluate(model_), warning + model_ + " 'hello'");
  EXPECT_VALUES(evaluate(folder_ / "run"), warning + (folder_ / "run/step-00000001.ckpt"));
  EXPECT_VALUES(expect_success(call("train --steps 2 --resume", folder_ / "run")).err,
                warning + (folder_ / "run/step-00000001.ckpt"));
  EXPECT_VALUES(expect_success(train(argv("--save-dir", folder_ / "other"))).err,
                warning + model_ + " 'hello'");
}

TEST_F(PublishedText, ExportsKeepTheFilesOfTheirFolder) {
  test_support::write_text(model_ + "/tokenizer.json", tokenizer_);
  test_support::write_text(folder_ / "data/tokenizer.json", tokenizer_);
  const std::vector<std::string> kept = {"generation_config.json", "chat_template.jinja",
                                         "tokenizer_config.json", "special_tokens_map.json"};
  for (const std::string& name : kept)
    test_support::write_text(model_ + "/" + name, "{\"bos_token\": \"" + name + "\"}");
  expect_success(train({}));
  const auto written = [&](const std::string& name) {
    return expect_success(call("export", folder_ / "run", "--format hf -o", folder_ / name));
  };
  EXPECT_EQ(written("out").err.find("not copied"), std::string::npos);
  for (const std::string& name : kept)
    EXPECT_EQ(test_support::read_text(folder_ / ("out/" + name)),
              test_support::read_text(model_ + "/" + name));
  // Settings of another tokenizer do not fit.
  test_support::write_text(model_ + "/tokenizer.json", tokenizer_ + "\n");
  written("other");
  EXPECT_CONTAINS(test_support::read_text(folder_ / "other/tokenizer_config.json"),
                  "PreTrainedTokenizerFast");
  fs::remove_all(model_);
  EXPECT_VALUES(written("gone").err,
                model_ + ": generation_config.json, chat_template.jinja tokenizer_config.json");
}

// Square matrices would be transposed without a notice.
TEST_F(PublishedText, WeightsInTheLayoutOfTransformersAreNamed) {
  const std::string file = model_ + "/model.safetensors";
  program::expect_error(
      train(argv("--model gpt-nano --vocabulary-size 263 --context 12 --allow-mismatch *.weight "
                 "--init-from",
                 file)),
      65, file + " GPT-2 transformers; --model DIR");
}

TEST_F(PublishedText, OtherFoldersAndFilesAreNamed) {
  program::expect_error(train(argv("--model", model_ + "/model.safetensors")), 78,
                        model_ + "/model.safetensors: folder, " + model_);
  program::expect_error(train(argv("--dropout 0.1")), 78, "--dropout 0.1 for the model '" + model_);
  const std::string other = folder_ / "other";
  const auto expect_named = [&](const std::string& file, const std::string& text) {
    fs::remove_all(other);
    fs::create_directories(fs::path(other + "/" + file).parent_path());
    test_support::write_text(other + "/" + file, "{}");
    program::expect_error(call("eval", other), 65, "no checkpoint in " + other + ": " + text);
    program::expect_error(sample(other, "--prompt=a"), 65, "no checkpoint in " + other);
  };
  expect_named("adapter_config.json", "adapter_config.json merge_and_unload()");
  expect_named("model.gguf", "GGUF config.json");
  expect_named("model.safetensors", "it has weights without config.json");
  expect_named("models--a--b/x", "models--*/snapshots/*");
  fs::create_directories(other + "/snapshots");
  fs::remove_all(other + "/models--a--b");
  fs::create_directories(other + "/refs");
  program::expect_error(call("eval", other), 65,
                        "no checkpoint in " + other + ": " + other + "/snapshots");
  test_support::write_text(model_ + "/adapter_config.json", "{}");
  const std::string notice = "adapter_config.json base";
  EXPECT_VALUES(expect_success(sample(model_, "--prompt-ids=104")).err, notice);
  EXPECT_VALUES(expect_success(train({})).err, notice);
}

TEST_F(PublishedText, IsNotOverwritten) {
  expect_success(train({}));
  const auto written = [&](const std::string& folder) {
    return call("export", folder_ / "run", "--format hf -o", folder);
  };
  program::expect_error(written(model_), 73, model_ + " weights");
  expect_success(written(folder_ / "again"));
  expect_success(written(folder_ / "again"));  // its own file
  test_support::write_text(folder_ / "again/model.safetensors.index.json", "{}");
  program::expect_error(written(folder_ / "again"), 73,
                        "has other weights, model.safetensors.index.json");
}

TEST_F(PublishedText, IsExportedForAnAutoTokenizer) {
  expect_success(call("export", folder_ / "own", "--format hf -o", folder_ / "plain"));
  EXPECT_FALSE(fs::exists(folder_ / "plain/tokenizer_config.json"));
  test_support::write_text(model_ + "/tokenizer.json", tokenizer_);
  expect_success(train({}));
  expect_success(call("export", folder_ / "run", "--format hf -o", folder_ / "out"));
  EXPECT_EQ(test_support::read_text(folder_ / "out/special_tokens_map.json"),
            R"({"eos_token":"<|endoftext|>"})");
  EXPECT_EQ(test_support::read_text(folder_ / "out/tokenizer_config.json"),
            R"({"tokenizer_class":"PreTrainedTokenizerFast","model_max_length":12,)"
            R"("clean_up_tokenization_spaces":false,"eos_token":"<|endoftext|>"})");
  const std::string text = "hello w\u00f6rld <|endoftext|>hell";
  const io::Tokenizer own = io::Tokenizer::parse(tokenizer_, "");
  std::vector<std::int32_t> ids;
  io::TokenEncoder(own).encode(text, ids);
  std::string expected = "<|endoftext|> 12";
  for (const std::int32_t id : ids) expected += " " + std::to_string(id);
  const CommandResult theirs = published::call_transformers({"tokenize", folder_ / "out", text});
  if (published::is_missing(theirs)) GTEST_SKIP() << "no transformers: " << theirs.out;
  EXPECT_EQ(theirs.exit_code, 0) << theirs.err;
  EXPECT_EQ(theirs.out, expected + "\n");
}

TEST_F(PublishedText, ATokenizerThatIsNotReadIsAWarning) {
  test_support::write_text(folder_ / "data/tokenizer.json", tokenizer_.substr(0, 300));
  const CommandResult trained = expect_success(train({}));
  EXPECT_CONTAINS(trained.err, "warning: " + (folder_ / "data/tokenizer.json") + ": ");
  program::expect_error(sample(folder_ / "run", "--prompt=hello"), 65, "its tokenizer");
}

TEST_F(PublishedText, IdsNeedNoTokenizerThatIsRead) {
  const std::string ids = expect_success(sample(model_, "--prompt-ids=104,101")).out;
  const auto expect_ids = [&](const std::string& of, const std::string& fault) {
    const CommandResult sampled = expect_success(sample(of, "--prompt-ids=104,101"));
    EXPECT_EQ(sampled.out, ids);
    EXPECT_EQ(std::ranges::count(sampled.err, '\n'), 1) << sampled.err;
    EXPECT_VALUES(sampled.err, "warning: " + of + fault + " settings");
  };
  std::string other = tokenizer_;
  other.replace(other.find("\"type\":\"BPE\""), 12, "\"type\":\"BPE\",\"byte_fallback\":true");
  test_support::write_text(model_ + "/tokenizer.json", other);
  expect_ids(model_, ": its tokenizer: model.byte_fallback is 'true'");
  test_support::write_text(model_ + "/tokenizer.json", tokenizer_.substr(0, 300));
  expect_ids(model_, ": its tokenizer: not a JSON object");
  expect_success(train({}));
  expect_ids(folder_ / "run/step-00000001.ckpt", ": its tokenizer: not a JSON object");
  // A tokenizer that is asked for has to be read.
  program::expect_error(
      call("sample --tokenizer", model_, "-n 3", folder_ / "run", "--prompt-ids=104,101"), 65,
      model_ + "/tokenizer.json: not a JSON object");
}

// A built-in model has the names of transformers, so that its weights come back under them.
TEST(BuiltInGpt, IsExportedAsGpt2) {
  const test_support::TemporaryDirectory folder;
  const auto train = [&](const std::string& run, const std::vector<std::string>& more) {
    return test_support::engine(program::quick_train(test_support::overridden(
        argv("--synthetic-shape 12 --synthetic-classes 17 --steps 2 --save-dir", folder / run),
        more)));
  };
  expect_success(train("own", argv("--model gpt-nano")));
  expect_success(call("export", folder / "own", "--format hf -o", folder / "gpt"));
  const std::string config = test_support::read_text(folder / "gpt/config.json");
  for (const char* setting : {"\"model_type\": \"gpt2\"", "\"n_positions\": 12",
                              "\"vocab_size\": 17", "\"n_layer\": 4", "\"GPT2LMHeadModel\""})
    EXPECT_CONTAINS(config, setting);
  expect_success(train("again", argv("--steps 1 --lr 1e-30 --model", folder / "gpt")));
  expect_success(call("verify --only params --rtol 0 --atol 1e-20",
                      folder / "own/step-00000002.ckpt", folder / "again/step-00000001.ckpt"));
  program::expect_error(
      call("export", folder / "own", "--format hf --dataset mnist -o", folder / "gpt"), 2,
      "--dataset ONNX: Hugging Face");
  expect_success(train("mlp", argv("--synthetic-shape 4x4x1 --model mlp")));
  program::expect_error(call("export", folder / "mlp", "--format hf -o", folder / "mlp-hub"), 78,
                        "model 'mlp' transformers");
}

}  // namespace
