// What a training prints, on a terminal and elsewhere: --progress, --quiet, --verbose, --log-file,
// --log-format, --log-ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/terminal.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

using program::expect_words;
using program::quick_train;
using test_support::argv;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;

// What the program writes to a terminal of so many columns; "" where there is none. Checks that it
// ends with 0.
std::string on_terminal(const std::vector<std::string>& arguments, unsigned short columns,
                        const std::string& no_color) {
  const test_support::TerminalResult shown = test_support::engine_on_terminal(
      arguments, columns, {{"NO_COLOR", no_color}, {"LC_ALL", "C.UTF-8"}});
  EXPECT_EQ(shown.exit_code, 0) << shown.text;
  return shown.text;
}

// Long enough that the bar is drawn several times.
std::vector<std::string> long_train(const std::vector<std::string>& more) {
  std::vector<std::string> all = argv(
      "train --model convnet --dataset synthetic --synthetic-size 640 --batch-size 32 --threads 1 "
      "--epochs 8 --log-every 40 --eval-every 0 --deterministic");
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Console, RichHasACurveAboveTheBar) {
  const std::string text = on_terminal(long_train({"--progress", "rich"}), 100, "");
  if (text.empty()) GTEST_SKIP() << "no pseudo-terminals here";
  expect_words(text, {"▁", "█", "\033[36m", "\033[1A", "loss ", "ETA ", "images/s", "[####"});
  // After the last line nothing of the bar or the curve is left.
  const std::string end = text.substr(text.rfind("Replicas: "));
  expect_words(end, {"Training completed in: "});
  EXPECT_LACKS(end, "█");
}

TEST(Console, NoColorAndNarrowTerminalsAreRespected) {
  const std::string text = on_terminal(long_train({"--progress", "rich"}), 30, "1");
  if (text.empty()) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_LACKS(text, "\033[36m");
  expect_words(text, {"█"});
  EXPECT_LACKS(text, "[####") << "no room";
}

TEST(Console, AutoHasABarWithoutCurveAndNeverHasNone) {
  const std::string text = on_terminal(long_train({}), 100, "");
  if (text.empty()) GTEST_SKIP() << "no pseudo-terminals here";
  expect_words(text, {"[####", "ETA "});
  EXPECT_LACKS(text, "█");
  const std::string without = on_terminal(long_train({"--progress", "never"}), 100, "");
  EXPECT_LACKS(without, "ETA ");
  expect_words(without, {" left"});
}

TEST(Console, QuietPrintsWarningsAndTheLogsHaveTheLines) {
  const TemporaryDirectory folder;
  const CommandResult run = expect_success(engine(
      quick_train(argv("--quiet --save-dir", folder / "run", "--log-file", folder / "train.log"))));
  EXPECT_EQ(run.out, "");
  for (const char* log : {"run/log.txt", "train.log"})
    expect_words(test_support::read_text(folder / log),
                 {"Z engine ", "Z Epoch [1/1], Step [5/5], Loss: ", "Z Saved step 5: ",
                  "Z Training completed in: "});
  const CommandResult warned = engine(quick_train({"--quiet"}));
  EXPECT_EQ(warned.out, "");
  expect_words(warned.err, {"engine: nothing will be saved"});
}

// The notice comes when the first line is lost, the error after the training has saved its work.
void expect_lost_output(const CommandResult& run, int code, const std::string& notice,
                        const std::string& error) {
  EXPECT_EQ(run.exit_code, code) << run.err;
  expect_words(run.out, {"Training completed in: "});
  std::istringstream lines(run.err);
  int notices = 0;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("engine: error: ") && test_support::has_values(line, notice)) ++notices;
  EXPECT_EQ(notices, 1) << run.err;
  std::smatch found;
  EXPECT_TRUE(std::regex_search(
      run.err, found,
      std::regex("engine: error: (rank 0: )?" + error + "; all else is complete\n")))
      << run.err;
}

TEST(Console, LinesThatAFullDiskHasLostAreSaidOnceAndCountedAtTheEnd) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  for (const std::string output : {"metrics", "log-file"})
    for (const char* ranks : {"1", "2"}) {
      const TemporaryDirectory folder;
      const CommandResult run =
          engine(quick_train({"--" + output, "/dev/full", "--log-every", "1", "--spawn", ranks,
                              "--save-dir", folder / "run"}));
      expect_lost_output(run, 74,
                         output +
                             " /dev/full: cannot write: No space left on device; "
                             "training continues without it\n",
                         output + " /dev/full: [0-9]+ lines are missing: No space left on device");
      EXPECT_TRUE(std::filesystem::exists(folder / "run/step-00000005.ckpt")) << run.err;
    }
}

TEST(Console, APipeThatNobodyReadsIsRefused) {
  const TemporaryDirectory folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string option : {"metrics", "log-file"}) {
    const CommandResult run = engine(quick_train({"--" + option, pipe}));
    EXPECT_EQ(run.exit_code, 73);
    expect_words(run.err, {option + " " + pipe + ": cannot create: pipe"});
  }
}

// A training under a limit of the shell, "-f 16", as batch systems may set it.
CommandResult limited(const std::string& limit, const std::vector<std::string>& options) {
  std::vector<std::string> command{"bash", "-c", "ulimit " + limit + "; exec \"$0\" \"$@\"",
                                   test_support::engine_binary()};
  const std::vector<std::string> training = quick_train(options);
  command.insert(command.end(), training.begin(), training.end());
  return test_support::run_command(command);
}

TEST(Console, ALimitOnStacksThatIsTooLowIsSaidAtOnce) {
  program::expect_error(limited("-s 64", {"--spawn", "2"}), 78, "stack 64 KiB (ulimit -s), 256");
  expect_success(limited("-s 256", {"--spawn", "2"}));
}

TEST(Console, ALimitOnTheSizeOfFilesIsAWriteThatFails) {
  const TemporaryDirectory folder;
  const std::string pattern = "[^\n]* too large[^\n]* 1 KiB[^\n]*";
  const std::string notice = "cannot write: too large 1 KiB training continues";
  expect_lost_output(limited("-f 1", {"--metrics", folder / "metrics.jsonl", "--log-every", "1"}),
                     74, notice, "metrics .*/metrics.jsonl: [0-9]+ lines are missing: " + pattern);
  expect_lost_output(limited("-f 1", {"--tensorboard-dir", folder / "events"}), 74, notice,
                     "tensorboard .*: [0-9]+ events are missing: " + pattern);
  expect_lost_output(limited("-f 1", {"--trace", folder / "trace.json"}), 73,
                     "engine: --trace: not written: cannot write ",
                     "--trace: not written: cannot write .*/trace.json: " + pattern);
  // Its parameters would fit, and the optimizer's state with them does not.
  const CommandResult saved = limited("-f 1500", {"--save-dir", folder / "run"});
  EXPECT_EQ(saved.exit_code, 73) << saved.err;
  expect_words(saved.err, {"step-00000005.ckpt 1500 KiB -f"});
}

// Writes to pipes that nobody reads, of which `out` takes 4 KiB and `err` the rest.
struct UnreadTraining {
  pid_t pid = -1;
  int out[2] = {-1, -1};
  explicit UnreadTraining(const std::vector<std::string>& options) {
    std::vector<std::string> all = quick_train(options);
    all.insert(all.begin(), test_support::engine_binary());
    std::vector<char*> argv;
    argv.reserve(all.size() + 1);
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_GE(fcntl(out[1], F_SETPIPE_SZ, 4096), 4096);
    pid = fork();
    if (pid == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
  }
  ~UnreadTraining() { close(out[0]); }
  // Its exit code; 128 + N when it was killed.
  int wait() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
};

// As `engine train | less`, or a terminal that was stopped by Ctrl-S.
TEST(Console, AReaderThatStandsStillStopsNeitherStepsNorSaves) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const TemporaryDirectory folder;
    const std::string run = folder / "run";
    const UnreadTraining training(
        argv("--steps 100000000 --save-every 2000s --log-every 1 --verbose --eval-every 0 "
             "--preempt-signal USR1 --save-dir",
             run));
    const bool went_on = test_support::eventually([&] {  // the pipe holds some 20 lines
      return std::filesystem::exists(run + "/latest") &&
             test_support::read_text(run + "/latest") >= "step-00006000.ckpt";
    });
    kill(training.pid, signal);
    EXPECT_TRUE(went_on);
    EXPECT_EQ(training.wait(), signal == SIGUSR1 ? 75 : 128 + signal);
    EXPECT_CONTAINS(test_support::read_text(run + "/log.txt"), "after step");
  }
}

TEST(Console, TextThatNobodyReadIsCountedWhenTheReaderGoesOn) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  const UnreadTraining training(argv(
      "--steps 8000 --log-every 1 --verbose --eval-every 0 --save-every 6500s --save-dir", run));
  EXPECT_TRUE(test_support::eventually([&] { return std::filesystem::exists(run + "/latest"); }));
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t n; (n = read(training.out[0], piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(n));
  EXPECT_EQ(training.wait(), 0);
  expect_words(text, {"lines missing here:", "Training completed in"});
}

TEST(Console, WithoutLogEveryALineASecondIsShownAndMoreArePlotted) {
  const TemporaryDirectory folder;
  const CommandResult run =
      expect_success(engine(quick_train(argv("--epochs 40 --save-dir", folder / "run"))));
  const std::string metrics = test_support::read_text(folder / "run/metrics.jsonl");
  std::size_t points = 0, lines = 0;
  for (std::size_t at = 0; (at = metrics.find("\"event\":\"step\"", at)) != std::string::npos; ++at)
    ++points;
  for (std::size_t at = 0; (at = run.out.find("Loss: ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(points, 100u);
  EXPECT_LT(lines, 50u) << run.out;
  expect_words(run.out, {"Epoch [40/40], Step [5/5]"});
}

TEST(Console, StepsAreCountedToTheEndOfTheRun) {
  const CommandResult run = engine(quick_train(argv("--steps 7 --log-every 1")));
  expect_words(run.out, {"Epoch [1/2], Step [5/5]", "Epoch [2/2], Step [1/2]"});
}

TEST(Console, MoreRanksThanCpusAreSaidAndFarMoreRejected) {
  program::expect_error(engine(quick_train(argv("--spawn 1000"))), 78, "--spawn 1000: at most ");
}

TEST(Console, VerboseTellsThePhasesOfAStep) {
  const CommandResult run = expect_success(engine(quick_train(argv("--verbose --spawn 2"))));
  expect_words(run.out,
               {"  a step: data ", " ms, forward ", " ms, backward ", " ms, waiting for averaging ",
                " ms, update ", "; lr 0.05", "; slowest rank "});
  EXPECT_LACKS(engine(quick_train({})).out, "a step: data");
}

// Each line is an object with the keys of all lines; returns their events.
std::vector<std::string> events_of(const std::string& lines) {
  std::vector<std::string> events;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    const tools::Json json = tools::parse_json(line, line);
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.push_back(key);
    EXPECT_EQ(keys, (argv("event level message node rank step ts")));
    events.push_back(json.at("event").get<std::string>());
  }
  return events;
}

// Removes notices about waiting, which a busy machine causes.
std::string without_waiting(const std::string& lines) {
  std::istringstream all(lines);
  std::string kept;
  for (std::string line; std::getline(all, line);)
    if (line.find("still waiting") == line.npos) kept += line + "\n";
  return kept;
}

TEST(Console, JsonLinesHaveTheSameKeys) {
  const TemporaryDirectory folder;
  const std::string log = folder / "log.jsonl";
  const CommandResult run =
      expect_success(engine(quick_train(argv("--log-format json --log-file", log, "--spawn 2"))));
  const std::vector<std::string> events = events_of(run.out);
  for (const char* event : {"start", "step", "eval", "end"})
    EXPECT_NE(std::ranges::find(events, event), events.end()) << event;
  expect_words(run.out, {R"("level":"info")", R"("rank":0,"step":null,"event":"start")",
                         R"("step":5,"event":"step","message":"Epoch [1/1], Step [5/5])",
                         R"("step":5,"event":"end","message":"Training completed in: )"});
  EXPECT_EQ(events_of(without_waiting(run.err)), std::vector<std::string>{"notice"}) << run.err;
  expect_words(run.err, {R"("level":"warning")", R"("message":"nothing will be saved)"});
  expect_words(test_support::read_text(log), {run.out.substr(run.out.find("\"event\":\"end\""))});
}

TEST(Console, LinesBeginWithTheTimeIfAskedFor) {
  const std::regex timed(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,6}Z .*)");
  const CommandResult run =
      expect_success(engine(quick_train(argv("--log-time --spawn 2 --log-ranks all"))));
  for (const std::string& text : {run.out, run.err}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(std::regex_match(line, timed)) << line;
  }
  expect_words(run.out, {"Z rank 1: Epoch [1/1], Step [5/5]", "Z Training completed in: "});
  expect_words(run.err, {"Z engine: nothing will be saved"});

  const CommandResult plain = engine(quick_train({}));
  EXPECT_TRUE(plain.out.starts_with("engine ")) << plain.out;
  EXPECT_TRUE(plain.err.starts_with("engine: ")) << plain.err;
}

TEST(Console, RanksThatAreAskedForPrintTheirLines) {
  const CommandResult both = expect_success(engine(quick_train(argv("--spawn 2 --log-ranks all"))));
  expect_words(both.out, {"\nEpoch [1/1], Step [5/5]", "rank 1: Epoch [1/1], Step [5/5]",
                          "rank 1: Training completed in: "});
  const CommandResult second = expect_success(engine(quick_train(argv("--spawn 2 --log-ranks 1"))));
  std::istringstream lines(second.out);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.starts_with("rank 1: ")) << line;
  expect_words(second.out, {"rank 1: engine ", "rank 1: Training completed in: "});
}

TEST(Console, RefusesWhatContradictsItself) {
  const auto refused = [](const std::vector<std::string>& more, int code,
                          const std::string& words) {
    program::expect_error(engine(quick_train(more)), code, words);
  };
  refused({"--quiet", "--verbose"}, 78, "--quiet requires that --verbose is not given");
  refused({"--progress", "rich", "--log-format", "json"}, 78, "--progress rich console");
  refused({"--log-ranks", "0,x"}, 78, "--log-ranks '0,x' all, 0, 0,2");
  refused({"--log-ranks", "1"}, 78, "--log-ranks names rank 1, but ranks go from 0 to 0");
  refused({"--log-file", "/nowhere/x/y.log"}, 73, "log-file /nowhere/x/y.log: cannot create");
}

}  // namespace
