// Runs and checkpoints that somebody else has prepared: they run no code, write to no other file,
// and end in one line.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

namespace fs = std::filesystem;
using program::expect_error;
using program::quick_train;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::read_text;
using test_support::TemporaryDirectory;
using test_support::write_text;

constexpr int kLevels = 100'000;

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class ForeignRun : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = new TemporaryDirectory;
    write_text(*made_ / "net.toml",
               "[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = \"fc\"\n"
               "out = \"classes\"\n");
    const CommandResult result = expect_success(engine(quick_train(
        {"--model", *made_ / "net.toml", "--save-dir", *made_ / "run", "--tensorboard"})));
  }
  static void TearDownTestSuite() { delete made_; }

  ForeignRun() {
    fs::copy(*made_ / "run", run_, fs::copy_options::recursive);
    write_text(target_, "of the user\n");
  }
  static CommandResult resume(const std::string& what) {
    return call("train --resume", what, "--epochs 2");
  }
  std::string checkpoint() const { return io::find_newest_checkpoint(run_, nullptr); }
  // The run's checkpoint as it is after `change`.
  void change_checkpoint(const std::function<void(io::Checkpoint&)>& change) const {
    const std::string path = checkpoint();
    io::Checkpoint checkpoint = io::load_checkpoint(path);
    change(checkpoint);
    io::save_checkpoint(checkpoint, path);
  }
  void expect_refused(const CommandResult& result, int code, const std::string& words) const {
    expect_error(result, code, words);
    EXPECT_EQ(read_text(target_), "of the user\n");
  }

  static inline TemporaryDirectory* made_ = nullptr;
  TemporaryDirectory folder_;
  const std::string run_ = folder_ / "run", target_ = folder_ / "target";
};

TEST_F(ForeignRun, ItsBackendIsNoLibrary) {
  const std::string record = read_text(run_ + "/run.json");
  const std::string library = folder_ / "libx.so";
  write_text(run_ + "/run.json", replaced(record, "\"backend\":{\"value\":\"auto\"",
                                          "\"backend\":{\"value\":\"" + library + "\""));
  expect_refused(resume(run_), 78, "run.json: its backend is " + library);
  fs::remove(run_ + "/run.json");
  change_checkpoint([&](io::Checkpoint& c) {
    c.config =
        replaced(c.config, "backend = \"auto\"", "backend = \"checked:shm," + library + "\"");
  });
  expect_refused(resume(run_), 78, "its backend is checked:shm," + library);
  expect_refused(resume(checkpoint()), 78, "its backend is checked:shm," + library);
  // It was typed, and is looked for.
  const CommandResult typed =
      call("train --resume", run_, "--epochs 2 --spawn 2 --backend", library);
  EXPECT_CONTAINS(typed.err, "backend plug-in " + library + " cannot be loaded");
}

TEST_F(ForeignRun, ItsLinksAreNotWrittenThrough) {
  for (const char* name : {"log.txt", "metrics.jsonl", "run.lock"})
    for (const bool hard : {false, true}) {
      const std::string path = run_ + "/" + name;
      fs::remove(path);
      hard ? fs::create_hard_link(target_, path) : fs::create_symlink(target_, path);
      expect_refused(resume(run_), 73,
                     path + (hard ? ": is a file with 2 names" : ": is a link to " + target_));
      fs::remove(path);
      fs::create_symlink(folder_ / "new", path);
      expect_refused(resume(run_), 73, path + ": is a link to " + (folder_ / "new"));
      EXPECT_FALSE(fs::exists(folder_ / "new"));
      fs::remove(path);
    }
  const std::string board = run_ + "/tensorboard";
  fs::remove_all(board);
  fs::create_directory(folder_ / "other");
  fs::create_directory_symlink(folder_ / "other", board);
  expect_refused(call("train --resume", run_, "--epochs 2 --tensorboard"), 73,
                 board + ": is a link to");
  EXPECT_TRUE(fs::is_empty(folder_ / "other"));
}

// The files that are replaced as a whole may be links, which are replaced too.
TEST_F(ForeignRun, NoFileThatIsReplacedIsWrittenThroughALink) {
  for (const char* name : {"latest", "status.json", "best"}) {
    fs::remove(run_ + "/" + name);
    fs::create_symlink(target_, run_ + "/" + name);
  }
  expect_success(resume(run_));
  EXPECT_EQ(read_text(target_), "of the user\n");
  EXPECT_FALSE(fs::is_symlink(run_ + "/latest"));
}

TEST_F(ForeignRun, DeepJsonIsRefusedByEveryCommand) {
  const std::string deep = repeated("[", kLevels) + repeated("]", kLevels);
  const std::string record = read_text(run_ + "/run.json");
  for (const std::string& text :
       {deep, replaced(record, "\"starts\":[", "\"starts\":[" + deep + ",")}) {
    write_text(run_ + "/run.json", text);
    const std::string words = "run.json: JSON 64 levels";
    expect_refused(call("report", run_, "-o", folder_ / "page.html"), 65, words);
    const CommandResult shown = engine({"inspect", run_});
    expect_success(shown);
    EXPECT_VALUES(shown.err, words);
    const std::string copy = folder_ / "copy";
    fs::remove_all(copy);
    fs::copy(run_, copy, fs::copy_options::recursive);
    const CommandResult resumed = resume(copy);
    expect_success(resumed);
    EXPECT_VALUES(resumed.err, words);
  }
  write_text(run_ + "/run.json", record);
  write_text(run_ + "/status.json", deep);
  expect_refused(engine({"top", run_}), 65, "status.json: JSON 64");
  write_text(run_ + "/metrics.jsonl", "{\"event\":" + deep + "}\n" + deep + "\n");
  expect_success(call("report", run_, "-o", folder_ / "page.html"));
  EXPECT_CONTAINS(read_text(folder_ / "page.html"), "2 lines");
  change_checkpoint([&](io::Checkpoint& c) { c.samples = deep; });
  expect_refused(engine({"predict", run_, target_}), 65, "nests more than 64 levels");
}

TEST_F(ForeignRun, DeepTomlIsRefusedByEveryCommand) {
  const std::string lists = "x = " + repeated("[", kLevels) + repeated("]", kLevels),
                    dotted = "x" + repeated(".x", kLevels) + " = 1",
                    header = "[" + repeated("x.", kLevels) + "x]";
  const auto expect_refusals = [&] {
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"eval", run_},
                                               {"predict", run_, target_},
                                               {"train", "--resume", run_},
                                               {"train", "--resume", checkpoint()}})
      expect_refused(engine(command), 78, "64 levels");
  };
  fs::remove(run_ + "/run.json");
  for (const std::string& text : {lists, dotted, header}) {
    std::string definition, config;
    change_checkpoint([&](io::Checkpoint& c) {
      definition = std::exchange(c.definition, text);
      config = c.config;
    });
    expect_refusals();
    change_checkpoint([&](io::Checkpoint& c) {
      c.definition = definition;
      c.config = text;
    });
    expect_refusals();
    change_checkpoint([&](io::Checkpoint& c) { c.config = config; });
  }
}

TEST_F(ForeignRun, MetricsAreAPlainFileOfALimitedSize) {
  const std::string path = run_ + "/metrics.jsonl";
  const auto report = [&] { return call("report", run_, "-o", folder_ / "page.html"); };
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_refused(report(), 65, path + " regular file");
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  expect_refused(report(), 65, path + ": is a link");
  fs::remove(path);
  write_text(path, "");
  ASSERT_EQ(truncate(path.c_str(), off_t{1} << 42), 0);
  expect_refused(report(), 65, path + ": longer than 1073741824 bytes");
  fs::remove(path);
  expect_success(report());
}

// Each once wrote beyond its memory, divided by zero or took all memory.
TEST_F(ForeignRun, NumbersOfADefinitionAreLimited) {
  const std::string end = "[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = \"classes\"\n";
  const auto image = [&](const std::string& kind, const std::string& options) {
    return "[[layer]]\nkind = \"" + kind + "\"\nname = \"a\"\n" + options +
           "\n[[layer]]\nkind = \"flatten\"\n" + end;
  };
  const std::pair<std::string, std::string> cases[] = {
      {image("pad_channels", "before = 288230376151711744"), "before 2147483647"},
      {image("conv2d", "out_channels = 1\npadding = 288230376151711744"), "padding 2147483647"},
      {image("conv2d", "out_channels = 1\npadding = 2147483647\nstride = 2147483647"),
       "layer 'a' (conv2d)"},
      {image("max_pool2d", "stride = 9223372036854775807\npadding = 1"), "stride 2147483647"},
      {image("embedding", "vocabulary = 2\nwidth = 4611686018427387904"), "width 2147483647"}};
  for (const auto& [definition, words] : cases) {
    write_text(folder_ / "net.toml", definition);
    fs::remove_all(run_);
    fs::copy(*made_ / "run", run_, fs::copy_options::recursive);
    fs::remove(run_ + "/run.json");
    change_checkpoint([text = definition](io::Checkpoint& c) { c.definition = text; });
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{quick_train({"--model", folder_ / "net.toml"}),
                                               {"eval", run_},
                                               {"train", "--resume", run_},
                                               {"train", "--resume", checkpoint()}})
      expect_refused(engine(command), 78, words);
  }
}

}  // namespace
