// Files of unusual kinds, and limits of a shell, as options of the real program meet them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_words;
using program::quick_train;
using test_support::CommandResult;
using test_support::engine;
using test_support::TemporaryDirectory;

using Words = std::vector<std::string>;

// A command that waits without a deadline takes all of this.
constexpr int kTimeout = 20'000;

// The commands that read a small file which the user names.
std::vector<Words> readers_of(const std::string& path) {
  return {quick_train({"--config", path}),
          quick_train({"--model", path}),
          {"launch", "--hostfile", path, "train"},
          {"bench", "comm", "--spawn", "2", "--baseline", path}};
}

void expect_refusals(const std::string& path, const std::string& words) {
  for (const Words& command : readers_of(path)) {
    const CommandResult result = engine(command, {}, kTimeout);
    EXPECT_TRUE(result.exit_code == 65 || result.exit_code == 78)
        << result.exit_code << " of " << command[0] << ": " << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    expect_words(result.err, {path, words});
  }
}

TEST(OddFiles, APipeWithANameIsRefusedAtOnce) {
  const TemporaryDirectory folder;
  const std::string path = folder / "pipe.toml";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_refusals(path, "regular device pipe");
}

TEST(OddFiles, ASparseFileIsRefusedBeforeItIsRead) {
  const TemporaryDirectory folder;
  const std::string path = folder / "sparse.toml";
  test_support::write_text(path, "");
  ASSERT_EQ(truncate(path.c_str(), off_t{1} << 40), 0);
  expect_refusals(path, "longer than ");
}

TEST(OddFiles, APipeOfAShellIsAConfiguration) {
  Words words{"bash", "-c", "\"$0\" \"$@\" --print-config --config <(echo lr = 0.375)",
              test_support::engine_binary()};
  for (const std::string& word : quick_train({})) words.push_back(word);
  const CommandResult result = test_support::run_command(words, {}, kTimeout);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_words(result.out, {"lr = 0.375"});
}

// As a shell leaves it where "$PLACE" is unset.
TEST(OddFiles, AnEmptyNameIsRefused) {
  for (const char* option : {"--config", "--data-dir", "--annotations", "--stage", "--save-dir",
                             "--resume", "--init-from", "--flight-dir", "--metrics",
                             "--tensorboard-dir", "--trace", "--log-file", "--init-method"}) {
    const CommandResult result = engine(quick_train({option, ""}), {}, kTimeout);
    EXPECT_NE(result.exit_code, 0) << option;
    expect_words(result.err, {std::string("engine: error: ") + option});
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
}

// In a shell with this limit.
CommandResult limited(const std::string& limit, const Words& arguments, int timeout_ms = 60'000) {
  Words words{"bash", "-c", "ulimit " + limit + "; exec \"$0\" \"$@\"",
              test_support::engine_binary()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return test_support::run_command(words, {}, timeout_ms);
}

std::string first_error(const std::string& text) {
  const std::string mark = "engine: error: ";
  const std::size_t at = text.find(mark);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(Limits, OnOpenFilesAreToldBeforeTheFirstStep) {
  // Whatever is inherited: each limit is too low for some part, or high enough.
  int of_the_folder = 0;
  for (int limit = 12; limit < 24; ++limit) {
    const TemporaryDirectory folder;
    const CommandResult result =
        limited("-n " + std::to_string(limit),
                quick_train({"--spawn", "2", "--backend", "shm", "--save-dir", folder / "run"}));
    if (result.exit_code == 0) continue;
    EXPECT_EQ(result.exit_code, 69) << limit << ": " << result.err;
    EXPECT_EQ(result.err.find("was not saved"), std::string::npos) << limit << ": " << result.err;
    const std::string first = first_error(result.err);
    expect_words(first, {"(ulimit -n)"});
    if (first.find("folder on rank 0 takes ") == std::string::npos) continue;
    expect_words(first,
                 {" open files", " of at most " + std::to_string(limit) + " are open already"});
    ++of_the_folder;
  }
  EXPECT_GT(of_the_folder, 0);
}

TEST(Limits, OnTheSizeOfCheckpointsAreToldBeforeTheFirstStep) {
  const TemporaryDirectory folder;
  for (const Words& ranks : {Words{}, Words{"--spawn", "2", "--backend", "socket"}}) {
    Words more{"--save-dir", folder / "run"};
    more.insert(more.end(), ranks.begin(), ranks.end());
    const CommandResult result = limited("-f 100", quick_train(more));
    EXPECT_EQ(result.exit_code, 73) << result.err;
    EXPECT_EQ(result.err.find("was not saved"), std::string::npos) << result.err;
    expect_words(first_error(result.err), {(folder / "run") + ": checkpoint 100 KiB -f"});
  }
}

TEST(Limits, OnTheSizeOfFilesAreTheFirstError) {
  const TemporaryDirectory folder;
  const CommandResult result =
      limited("-f 100", quick_train({"--spawn", "2", "--flight-dir", folder.path().string()}));
  EXPECT_EQ(result.exit_code, 69) << result.err;
  expect_words(first_error(result.err),
               {"rank 0: backend shm", "shared memory of ", "too large", "raise it (ulimit -f)"});
  EXPECT_EQ(result.err.find("ended before the others"), std::string::npos) << result.err;
}

TEST(Limits, OfTheAcceptorFileEndAnElasticJobAtOnce) {
  const CommandResult result = limited(
      "-f 1", quick_train({"--spawn", "2", "--elastic", "--rdzv-timeout", "300"}), kTimeout);
  EXPECT_EQ(result.exit_code, 73) << result.err;
  expect_words(first_error(result.err),
               {"cannot write ", "/elastic-", "too large", "raise it (ulimit -f)"});
  const std::string rest = result.err.substr(result.err.find(first_error(result.err)) + 1);
  EXPECT_EQ(first_error(rest), "") << result.err;
}

// 77 would say that somebody else has another secret.
TEST(Limits, OnFilesOfSecretsAreAnOutputThatCannotBeCreated) {
  const std::string home = "/proc/nowhere";  // where nothing can be made
  Words words{test_support::engine_binary()};
  for (const std::string& word :
       quick_train({"--rank", "0", "--world-size", "2", "--init-method", "tcp://127.0.0.1:29819"}))
    words.push_back(word);
  const CommandResult result =
      test_support::run_command(words, {{"XDG_CONFIG_HOME", home}}, kTimeout);
  EXPECT_EQ(result.exit_code, 73) << result.err;
  expect_words(result.err, {"folder of " + home + "/engine/secret"});
}

}  // namespace
