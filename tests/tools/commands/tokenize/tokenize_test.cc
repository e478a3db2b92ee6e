// `engine tokenize`: its files, also as a data set, and its ids beside those of the library
// `tokenizers`.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "tests/io/tokenizer/tokenizer_text.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using test_support::call;
using test_support::expect_success;
using test_support::read_text;
using test_support::write_text;

class Tokenize : public testing::Test {
 protected:
  void SetUp() override { write_text(tokenizer_, tokenizer_text::tokenizer_json(plain())); }
  // Without a regular expression, so that it runs without PCRE2, too.
  static tokenizer_text::Parts plain() {
    return {.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})",
            .added = R"({"id":262,"content":"<|endoftext|>","special":true,"normalized":false})"};
  }
  // Then texts are divided at line ends.
  void split_words() {
    write_text(tokenizer_, tokenizer_text::tokenizer_json({.added = plain().added}));
  }
  std::string write(const std::string& name, const std::string& text) {
    write_text(folder_ / name, text);
    return folder_ / name;
  }
  static std::string lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "hello " + std::to_string(i * 7919) + " world;\n";
    return text;
  }
  // The ids of a file, behind its header of 128 bytes.
  std::vector<int> ids(const std::string& name) const {
    const std::string file = read_text(folder_ / ("data/" + name));
    std::vector<int> found;
    for (std::size_t i = 128; i + 1 < file.size(); i += 2)
      found.push_back(static_cast<unsigned char>(file[i]) | static_cast<unsigned char>(file[i + 1])
                                                                << 8);
    return found;
  }

  test_support::TemporaryDirectory folder_;
  const std::string tokenizer_ = folder_ / "tokenizer.json", data_ = folder_ / "data";
};

TEST_F(Tokenize, ALimitOfTheFileIsNamed) {
  std::string json = tokenizer_text::tokenizer_json(plain());
  json.insert(1, R"("truncation":{"max_length":4,"direction":"Right"},"padding":null,)");
  write_text(tokenizer_, json);
  const auto made = expect_success(call("tokenize --val-fraction 0 --tokenizer", tokenizer_, "-o",
                                        data_, write("a.txt", "hello hello hello")));
  EXPECT_VALUES(made.err, tokenizer_ + ": 'truncation' not applied:");
  EXPECT_GT(ids("train.npy").size(), 4U);
}

TEST_F(Tokenize, FilesAreTrainedOn) {
  split_words();
  const std::string text = write("a.txt", lines(400));
  const auto made = expect_success(call("tokenize --tokenizer", tokenizer_, "-o", data_, text));
  EXPECT_CONTAINS(made.out, "16 bits each");
  EXPECT_CONTAINS(made.out, "--vocabulary-size 263");
  const auto trained =
      expect_success(call("train --model gpt-nano --dataset tokens --context 16 --steps 2 "
                          "--vocabulary-size 263 --data-dir",
                          data_));
  EXPECT_CONTAINS(trained.out, "tokens (");
}

TEST_F(Tokenize, TheTokenizerIsCopiedBesideTheTokens) {
  const std::string text = write("a.txt", "hello"), val = write("b.txt", "he");
  const auto run = [&](const std::string& more) {
    return call("tokenize --tokenizer", tokenizer_, "-o", data_, "--val", val, more, text);
  };
  expect_success(run("--threads=1"));
  EXPECT_EQ(read_text(data_ + "/tokenizer.json"), read_text(tokenizer_));
  std::filesystem::remove(data_ + "/train.npy");
  std::filesystem::remove(data_ + "/val.npy");
  expect_success(run("--threads=1"));  // the same one
  std::filesystem::remove(data_ + "/train.npy");
  std::filesystem::remove(data_ + "/val.npy");
  write_text(data_ + "/tokenizer.json", "{}");
  expect_error(run("--threads=1"), 73, "tokenizer.json exists and differs from ");
  expect_success(run("--overwrite"));
  EXPECT_EQ(read_text(data_ + "/tokenizer.json"), read_text(tokenizer_));
}

TEST_F(Tokenize, DocumentsEndWithTheSeparator) {
  const std::string a = write("a.txt", "hello"), b = write("b.txt", "\xEF\xBB\xBFhe"),
                    c = write("c.txt", "ll");
  expect_success(call("tokenize --tokenizer", tokenizer_, "-o", data_, "--val", c, a, b));
  EXPECT_EQ(ids("train.npy"), (std::vector<int>{259, 262, 256, 262}));
  EXPECT_EQ(ids("val.npy"), (std::vector<int>{257, 262}));
  // Without a mark at their start, and packed: all of them is for training.
  write("b.txt", "he");
  const std::string packed = folder_ / "d.txt.gz", line(5000, 'x');
  const gzFile file = gzopen(packed.c_str(), "wb");
  gzwrite(file, line.data(), static_cast<unsigned>(line.size()));
  gzclose(file);
  expect_success(
      call("tokenize --overwrite --tokenizer", tokenizer_, "-o", data_, "--val", c, packed, a, b));
  EXPECT_EQ(ids("train.npy").size(), 5000u + 1 + 4);
  EXPECT_EQ(ids("val.npy"), (std::vector<int>{257, 262}));
  expect_success(call("tokenize --overwrite --separator none --tokenizer", tokenizer_, "-o", data_,
                      "--val", c, a, b));
  EXPECT_EQ(ids("train.npy"), (std::vector<int>{259, 256}));
}

TEST_F(Tokenize, FilesAreTheSameForAnyNumberOfThreads) {
  split_words();
  const std::string text = write("a.txt", lines(20'000));
  const auto both = [&](const std::string& threads) {
    expect_success(call("tokenize --overwrite --tokenizer", tokenizer_, "-o", data_, "--threads",
                        threads, text));
    return read_text(data_ + "/train.npy") + read_text(data_ + "/val.npy");
  };
  const std::string one = both("1");
  EXPECT_EQ(one, both("3"));
  const double share = static_cast<double>(ids("val.npy").size()) /
                       static_cast<double>(ids("train.npy").size() + ids("val.npy").size());
  EXPECT_NEAR(share, 0.1, 0.03);
}

TEST_F(Tokenize, SaysWhatIsWrong) {
  const std::string text = write("a.txt", lines(100));
  const auto with = [&](const std::vector<std::string>& more) {
    return call("tokenize --tokenizer", tokenizer_, "-o", data_, more);
  };
  expect_error(with({text, "--separator", "<|eot|>"}), 78, "'<|eot|>' is no token of");
  expect_error(with({write("wide.txt", "\xFF\xFEh")}), 65, "UTF-16; expected UTF-8");
  const std::string wider("\xFF\xFE\0\0h\0\0\0", 8);
  expect_error(with({write("wider.txt", wider)}), 65, "UTF-32; expected UTF-8");
  expect_error(with({folder_ / "none.txt"}), 65, "none.txt");
  const std::string packed("\x1F\x8B\x08\0\0\0\0\0\0\3", 10);
  expect_error(with({write("small.txt.gz", packed)}), 78, "small.txt.gz --val");
  expect_error(call("tokenize --tokenizer", folder_ / "a.txt", "-o", data_, text), 65,
               "expected tokenizer.json");
  expect_error(with({text, "--val", text, "--val-fraction", "0.5"}), 2, "--val-fraction");
  expect_error(with({write("empty.txt", "")}), 65, "empty.txt: found no text");
  expect_error(with({text, "--val", folder_ / "empty.txt"}), 65, "empty.txt: found no text");
  expect_error(with({text}), 65, "last 0.1 no line");
  EXPECT_FALSE(std::filesystem::exists(data_ + "/train.npy"));
  EXPECT_VALUES(expect_success(with({text, "--val-fraction", "0"})).out,
                "val.npy no tokens, --val");
  expect_error(with({text}), 73, "train.npy exists; --overwrite replaces it");
  write("data/train.bin", "");
  expect_error(with({text, "--overwrite"}), 73, "train.bin exists; choose another folder");
}

TEST_F(Tokenize, SaysThatNothingSeparatesTexts) {
  tokenizer_text::Parts parts = plain();
  parts.added = R"({"id":262,"content":"<|eot|>","special":true,"normalized":false})";
  write_text(tokenizer_, tokenizer_text::tokenizer_json(parts));
  const std::string a = write("a.txt", "hello"), b = write("b.txt", "he");
  const auto out = [&](const std::string& separator) {
    return expect_success(call("tokenize --overwrite --tokenizer", tokenizer_, "-o", data_,
                               separator, "--val", b, a))
        .out;
  };
  EXPECT_CONTAINS(out("--threads=1"), "No token");
  for (const char* separator : {"none", "<|eot|>"})
    EXPECT_EQ(out(std::string("--separator=") + separator).find("No token"), std::string::npos);
}

// Tokenizers that the library trains, on text of many scripts with damaged characters.
TEST_F(Tokenize, GivesTheIdsOfTheLibraryTokenizers) {
  const char* python = std::getenv("PEER_PYTHON");
  const auto checked = test_support::run_command(
      {"/usr/bin/env", python == nullptr ? "python3" : python,
       test_support::source_directory() + "/tests/tools/commands/tokenize/tokenize_check.py",
       test_support::engine_binary(), folder_.path().string()},
      {}, 300'000);
  if (checked.exit_code == 77) GTEST_SKIP() << checked.out;
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

}  // namespace
