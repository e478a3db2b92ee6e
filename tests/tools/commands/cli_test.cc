// The real binary, as a user or a script meets it: exit codes, one-line errors, nothing
// half-written, no orphan.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <sstream>
#include <thread>

#include "engine/ops/common/cpu_dispatch.h"
#include "io/base/text/text_parts.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::engine_binary;
using test_support::expect_success;
using test_support::run_command;
using test_support::Running;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

// A short training on random data: a second or less.
std::vector<std::string> logged_train(const std::vector<std::string>& more) {
  return test_support::overridden(program::quick_train({"--log-every", "2"}), more);
}

// One line "engine: error: ...", the last, and the code. Before it may be what was said of the run.
void expect_last_error(const CommandResult& result, int code,
                       const std::vector<std::string>& words) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  std::istringstream lines(result.err);
  std::string line, last;
  while (std::getline(lines, line)) {
    EXPECT_LACKS(last, "engine: error: ") << "not the last: " << result.err;
    const bool notice = line.starts_with("engine: changed: ") || line.starts_with("verify: ") ||
                        line.starts_with("engine: nothing will be saved") ||
                        line.find(" ranks share ") != std::string::npos;
    EXPECT_TRUE(notice || line.starts_with("engine: error: ")) << result.err;
    last = line;
  }
  EXPECT_EQ(last.find("engine: error: "), 0u) << result.err;
  for (const std::string& word : words) EXPECT_VALUES(result.err, word);
}

TEST(Help, EveryCommandExplainsItself) {
  for (const char* command : {"train", "launch", "verify", "eval", "predict", "bench", "report",
                              "top", "inspect", "export", "import", "sample", "doctor", "relay",
                              "env", "version", "completion", "submit"}) {
    const CommandResult help = expect_success(engine({command, "--help"}));
    EXPECT_CONTAINS(help.out, "Usage: engine " + std::string(command));
    EXPECT_EQ(engine({"help", command}).out, help.out);
  }
  expect_success(engine({"help"}));
  EXPECT_EQ(expect_success(engine({"help", "help"})).out, engine({"help"}).out);
  EXPECT_EQ(engine({}).exit_code, 2);
}

TEST(Top, ShowsARunThatHasEnded) {
  const test_support::TemporaryDirectory folder;
  const std::string run = folder / "run";
  expect_last_error(engine({"top", run}), 65,
                    {"neither run", "nor a rendezvous, HOST:PORT or file://PATH"});
  expect_success(call(
      "train --model mlp --dataset synthetic --limit 64 --epochs 2 --batch-size 16 --threads 1 "
      "--spawn 2 --save-dir",
      run));
  const CommandResult top = expect_success(engine({"top", run}));
  program::expect_words(top.out,
                        {": mlp on synthetic, completed\nstep 8 of 8, epoch 2 of 2 | loss ",
                         "newest checkpoint: step-00000008.ckpt\n"});
  const CommandResult json = call("top", run, "--json");
  EXPECT_EQ(json.out.find("{\"schema\":1,\"run\":\""), 0u) << json.out;
}

// A rank of a job of two on random data, until it is stopped.
std::unique_ptr<Running> start_rank(const std::string& rank, const std::string& meet,
                                    const std::vector<std::string>& more = {}) {
  return std::make_unique<Running>(
      argv(engine_binary(),
           logged_train(argv("--world-size 2 --epochs 1000000 --rank", rank, "--init-method",
                             "file://" + meet, "--flight-dir",
                             std::filesystem::path(meet).parent_path().string(), more))));
}

// By the rendezvous file, and by what is in it: "at HOST:PORT", "secret HEX".
TEST(Top, FollowsAJobThatSavesNothing) {
  const TemporaryDirectory folder;
  const std::string meet = folder / "meet";
  const auto zero = start_rank("0", meet), one = start_rank("1", meet);
  CommandResult top;
  EXPECT_TRUE(test_support::eventually([&] {
    top = call("top", "file://" + meet, "--json");
    return top.exit_code == 0 && top.out.find("\"step\":0,") == std::string::npos;
  })) << top.err;
  EXPECT_EQ(top.out.find("{\"schema\":1,\"run\":\""), 0u) << top.out;
  program::expect_words(top.out, {"\"state\":\"training\"", "{\"rank\":1,\"host\":\""});

  std::string word, address, secret;
  std::istringstream text(test_support::read_text(meet));
  while (text >> word) {
    if (word == "at") text >> address;
    if (word == "secret") text >> secret;
  }
  const CommandResult by_address = expect_success(
      run_command(argv(engine_binary(), "top", address, "--once"), {{"ENGINE_SECRET", secret}}));
  EXPECT_CONTAINS(by_address.out, ": mlp on synthetic, training\n");
  const CommandResult stranger =
      run_command({engine_binary(), "top", address}, {{"ENGINE_SECRET", std::string(64, '0')}});
  expect_last_error(stranger, 77, {"proved command", "--spawn folder"});

  for (const Running* rank : {zero.get(), one.get()}) kill(rank->pid(), SIGTERM);
  for (Running* rank : {zero.get(), one.get()}) EXPECT_EQ(rank->wait(), 143) << rank->err();
  expect_last_error(engine({"top", address}, {{"ENGINE_SECRET", secret}}), 69,
                    {"follow " + address});
}

TEST(Top, WaitsForAJobWhoseRanksHaveNotAllCome) {
  const TemporaryDirectory folder;
  const std::string meet = folder / "meet";
  const auto zero = start_rank("0", meet);
  EXPECT_TRUE(test_support::eventually([&] { return std::filesystem::exists(meet); }));
  Running top(argv(engine_binary(), "top", "file://" + meet, "--once"));
  EXPECT_TRUE(top.writes_err("waiting for rank 1 to join the job")) << top.err();
  const auto one = start_rank("1", meet);
  EXPECT_EQ(top.wait(), 0) << top.err();
  EXPECT_CONTAINS(top.out(), ": mlp on synthetic, training\n");
}

// Which of two ranks that have begun to train are killed at once, and what top says then.
CommandResult top_after_killing(const std::vector<std::size_t>& killed,
                                const std::vector<std::string>& more) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  std::vector<std::unique_ptr<Running>> ranks;
  for (const char* rank : {"0", "1"})
    ranks.push_back(start_rank(rank, folder / "meet", {"--save-dir", run}));
  EXPECT_TRUE(test_support::eventually(
      [&] { return call("top", run).out.find(" images/s | ") != std::string::npos; }));
  for (const std::size_t rank : killed) kill(ranks[rank]->pid(), SIGKILL);
  for (const auto& rank : ranks) rank->wait();
  return call("top", run, more);
}

TEST(Top, SaysWhyARunFailed) {
  const CommandResult top = expect_success(top_after_killing({1}, {}));
  EXPECT_CONTAINS(top.out, ": mlp on synthetic, failed\n");
  const std::size_t cause = top.out.find("\ncause: ");
  ASSERT_NE(cause, std::string::npos) << top.out;
  EXPECT_NE(top.out.find("rank 1 (host ", cause), std::string::npos) << top.out;
  EXPECT_LACKS(top.out, " left");
}

TEST(Top, SaysThatAKilledRunHasEnded) {
  const CommandResult top = expect_success(top_after_killing({0, 1}, {"--json"}));
  EXPECT_CONTAINS(top.out, "\"state\":\"ended without saying so\",\"cause\":\"process ");
}

TEST(Top, MakesNoSecret) {
  const TemporaryDirectory home;
  const CommandResult top = run_command(
      argv("env -u ENGINE_SECRET -u ENGINE_SECRET_FILE", engine_binary(), "top 127.0.0.1:1"),
      {{"HOME", home.path().string()}, {"XDG_CONFIG_HOME", ""}});
  expect_last_error(top, 77, {"no secret found", home / ".config/engine/secret"});
  EXPECT_TRUE(std::filesystem::is_empty(home.path()));
}

TEST(Top, SaysWhatAPlaceLacks) {
  expect_last_error(call("top http://127.0.0.1:29500"), 2,
                    {"http://127.0.0.1:29500: expected a run's folder, HOST:PORT"});
  expect_last_error(call("top file://"), 2, {"file:// names no file"});
  expect_last_error(call("top", std::string("")), 2, {"is empty"});
}

TEST(Help, ShowsTheMostUsedOptionsFirst) {
  const std::string help = call("train --help").out;
  for (const char* option : {"--model NAME", "--lr F", "--spawn N", "--save-dir DIR"})
    EXPECT_CONTAINS(help, option) << option;
  EXPECT_LACKS(help, "--powersgd-rank");
  const std::string all = call("train --help all").out;
  program::expect_words(all, {"--powersgd-rank R", "\nAveraging\n"});
  const std::string group = call("train --help preempt").out;
  EXPECT_CONTAINS(group, "--preempt-signal");
  EXPECT_LACKS(group, "--lr");
  EXPECT_EQ(call("help train preempt").out, group);
}

TEST(Help, ExplainsOneOption) {
  const std::string help = call("train --help sync-every").out;
  for (const char* part : {"--sync-every K", "(default: 1)", "ENGINE_SYNC_EVERY", "[sync]",
                           "--sync params --sync-every 8"})
    EXPECT_CONTAINS(help, part) << part << " in:\n";
  EXPECT_EQ(call("train --help --sync_every").out, help);
  expect_last_error(call("train --help sync-evry"), 2,
                    {"no help for 'sync-evry'", "did you mean 'sync-every'"});
}

TEST(Help, FitsTheTerminal) {
  for (const int columns : {40, 80, 100}) {
    const CommandResult help =
        engine(argv("train --help all"), {{"COLUMNS", std::to_string(columns)}});
    for (const std::string& line : base::split_text(help.out, '\n')) {
      const bool is_example = line.find("engine train --") != std::string::npos;  // to be copied
      EXPECT_TRUE(is_example || line.size() <= static_cast<std::size_t>(columns)) << line;
    }
  }
}

TEST(Help, SaysWhichSwitchesAreOn) {
  const std::string help = call("train --help all").out;
  for (const std::string name : {"shuffle", "pin-memory", "non-blocking", "outer-nesterov"}) {
    const std::size_t at = help.find("--[no-]" + name);
    ASSERT_NE(at, std::string::npos) << name;
    const std::size_t next = help.find("\n  --", at);
    EXPECT_LT(help.find("(default: on)", at), next) << name;
  }
}

// A command line that is wrong: its exit code, and parts of its one error.
struct Mistake {
  std::string line;
  int code;
  std::vector<std::string> parts;
};
void expect_mistakes(const std::vector<Mistake>& mistakes) {
  for (const auto& [line, code, parts] : mistakes) {
    SCOPED_TRACE(line);
    expect_last_error(engine(test_support::split_words(line)), code, parts);
  }
}

TEST(Usage, UnknownNamesSuggestTheNearest) {
  expect_mistakes({{"trian", 2, {"'trian'", "'train'"}},
                   {"train --sync-evry 3", 2, {"--sync-evry", "--sync-every"}},
                   {"train --batch_sise=3", 2, {"--batch-sise", "--batch-size"}},
                   {"train --model convnt --dataset synthetic", 78, {"convnt", "convnet"}},
                   {"train --model mlp --dataset mnits", 78, {"mnits", "mnist"}},
                   {"eval r --split tset", 2, {"--split is 'tset'", "'test'"}}});
}

TEST(Usage, OptionsOfOtherProgramsAreAnsweredWithOurs) {
  const std::string rate = "unknown option '--learning-rate': here it is --lr";
  expect_mistakes({{"train --learning-rate 0.1", 2, {rate}},
                   {"predict --learning-rate 0.1", 2, {rate + ", of engine train"}},
                   {"eval --learning-rate 0.1", 2, {rate + ", of engine train"}},
                   {"launch --learning-rate 0.1", 2, {rate + ", of engine train"}},
                   {"train --max_steps=10", 2, {" --steps"}},
                   {"train --nproc_per_node 2", 2, {"--spawn, or engine launch --nproc-per-node"}},
                   {"train --output-dir x", 2, {" --save-dir"}},
                   {"train --test-batch-size 9", 2, {"'--test-batch-size': there is none"}},
                   {"launch --num-nodes 2 train", 2, {" --nnodes"}}});
}

TEST(Usage, MistakesAreSaidAsSentences) {
  const std::string rate = "--lr needs a value";
  expect_mistakes({{"train --model mlp --lr", 2, {rate}},
                   {"train --lr --momentum 0.9", 2, {rate + ", but --momentum comes after it"}},
                   {"train --lr --momentum=0.9", 2, {rate + ", but --momentum comes after it"}},
                   {"train --lr -c x.toml", 2, {rate + ", but -c comes after it"}},
                   {"train --save_dir --resume", 2, {"--save-dir needs", "--resume comes after"}},
                   {"launch --nnodes -- train", 2, {"--nnodes needs", "-- comes after"}},
                   {"launch --nnodes --standalone train", 2, {"--standalone comes after"}},
                   {"train --model mlp --dataset synthetic --lr -1", 78, {"--lr is '-1'"}},
                   {"bench", 2, {"WHAT, which is step|scaling|"}},
                   {"train mlp glyphs", 2, {"mlp glyphs"}},
                   {"sample r --prompt a --temperature -1", 2, {"--temperature is '-1'"}},
                   {"sample r --prompt a --threads -1", 2, {"--threads is '-1'", "from 0 to 1024"}},
                   {"bench step --steps 0", 2, {"--steps is '0'", "from 1 to "}},
                   {"train --config ''", 78, {"--config is empty"}},
                   {"top r --interval 0", 2, {"--interval is '0'", "from 0.1 to 3600"}}});
}

// The folder in which it is started may be anybody's.
TEST(Usage, LibrariesAreNotTakenFromTheCurrentFolder) {
  const CommandResult result =
      test_support::run_command({test_support::engine_binary(), "version"}, {{"LD_DEBUG", "libs"}});
  std::istringstream lines(result.err);
  int looks = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("trying file=");
    if (at == std::string::npos) continue;
    ++looks;
    EXPECT_EQ(line[at + 12], '/') << line;
  }
  EXPECT_GT(looks, 0) << result.err;
}

// Each ends for another reason, behind the notice.
TEST(Usage, OfTwoValuesOfOneOptionTheLastCountsAndBothAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"train --lr 0.1 --lr=0.2 --model x", "--lr '0.1' '0.2'"},
      {"train --steps 1 --sync_every 2 --sync-every 3 --model x", "--sync-every '2' '3'"},
      {"train -c a.toml --config b.toml", "--config 'a.toml' 'b.toml'"},
      {"launch --nnodes 1 --nnodes x train", "--nnodes '1' 'x'"},
      {"bench step --warmup 1 --warmup 2 --model x", "--warmup '1' '2'"},
      {"verify a b --format json --format table", "--format 'json' 'table'"}};
  for (const auto& [line, expected] : cases)
    EXPECT_VALUES(engine(test_support::split_words(line)).err, expected) << line;
  const CommandResult last = expect_success(engine(
      argv(program::quick_train({"--log-every", "2"}), "--steps 9 --lr 7 --lr 0.1 --steps 1")));
  EXPECT_CONTAINS(last.out, "lr 0.1 ");
}

TEST(Usage, AFlagMayHaveItsValueWithIt) {
  const auto shuffle = [](const std::string& flag) {
    const std::string config = engine(logged_train({"--print-config", flag})).out;
    return config.find("\nshuffle = true\n") != std::string::npos;
  };
  EXPECT_TRUE(shuffle("--shuffle=true"));
  EXPECT_FALSE(shuffle("--shuffle=false"));
  EXPECT_FALSE(shuffle("--no-shuffle=yes"));
  EXPECT_TRUE(shuffle("--no_shuffle=0"));
  const std::string both = "--shuffle and --no-shuffle are both given";
  expect_mistakes({{"train --shuffle=maybe", 2, {"--shuffle is 'maybe'", "--shuffle alone"}},
                   {"bench comm --check=false", 2, {"--check is 'false'", "leave it out"}},
                   {"train --no-shuffle --seed 1 --shuffle", 2, {both}},
                   {"train --shuffle=false --shuffle", 2, {both}}});
}

TEST(Usage, OneValueMayBeGivenAgainAndListsMayGrow) {
  const TemporaryDirectory folder;
  const std::string file = folder / "run.toml";
  test_support::write_text(file, "lr = 0.5\nshuffle = true\n");
  const CommandResult result = expect_success(engine(logged_train(
      argv("--steps 1 --lr 0.1 --lr 0.10 --no-shuffle --no-shuffle -c", file, "--config", file))));
  EXPECT_CONTAINS(result.out, "lr 0.1 ");
  expect_success(call("bench kernels --list --set gemm --sizes 64 --sizes 80 --batch 8 --batch 8"));
}

// As engine train reads its own: 0x10 is no number, and 010 is no octal 8.
TEST(Usage, EveryCommandReadsNumbersAlike) {
  using Words = std::vector<std::string>;
  const auto refused = [](const char* command, const Words& options, const Words& values) {
    for (const std::string& option : options)
      for (const std::string& value : values)
        expect_last_error(engine(argv(test_support::split_words(command), option, value)), 2,
                          {option + " is '" + value + "'; expected a "});
  };
  const std::pair<const char*, Words> numbers[] = {{"top r", {"--interval"}},
                                                   {"verify a b", {"--rtol", "--atol"}},
                                                   {"sample r --prompt a", {"--temperature"}},
                                                   {"bench step", {"--seconds"}},
                                                   {"bench scaling", {"--seconds"}},
                                                   {"bench kernels", {"--seconds"}},
                                                   {"bench io", {"--seconds"}},
                                                   {"bench comm", {"--seconds", "--tolerance"}}};
  for (const auto& [command, options] : numbers)
    refused(command, options, {"nan", "-NaN", "inf", "-1", "0x1p3", "1e3x", " 1", "1,5", ""});
  const std::pair<const char*, Words> counts[] = {
      {"verify a b", {"--ulp", "--max"}},
      {"sample r --prompt a", {"--count", "--top-k", "--seed", "--threads"}},
      {"predict r x.png", {"--top"}},
      {"inspect a.ckpt", {"--order"}},
      {"report r", {"--port", "--worst"}},
      {"bench step", {"--batch", "--ranks", "--steps", "--warmup"}},
      {"bench scaling", {"--batch", "--steps", "--warmup"}},
      {"bench demos", {"--limit-steps"}},
      {"bench kernels", {"--sizes", "--batch", "--threads"}},
      {"bench save", {"--rounds"}},
      {"bench io", {"--rounds"}},
      {"bench verify", {"--mb", "--rounds"}},
      {"bench comm", {"--iters", "--warmup"}}};
  for (const auto& [command, options] : counts)
    refused(command, options,
            {"abc", "0x10", "1e3", "1.5", "-1", "+1", " 5", "99999999999999999999"});
  const std::string ten = call("bench kernels --list --batch 010").out;
  EXPECT_NE(call("bench kernels --list --batch 8").out, ten);
  EXPECT_EQ(call("bench kernels --list --batch 10").out, ten);
}

// A measurement must not be another one than what was asked for.
TEST(Usage, ABenchmarkDropsNoOption) {
  const std::string seconds = "--seconds and --steps exclude each other",
                    ranks = "--spawn and --ranks exclude each other";
  expect_mistakes(
      {{"bench step --steps 5 --seconds 2", 2, {seconds}},
       {"bench scaling --steps 5 --seconds 2", 2, {seconds}},
       {"bench step --ranks 2 --spawn 1", 2, {ranks}},
       {"bench comm --ranks 2 --spawn 4", 2, {ranks}},
       {"bench step --batch 8 --batch-size 64", 2, {"--batch-size and --batch exclude"}},
       {"bench kernels --set conv --sizes 512", 2, {"--sizes is for --set gemm"}},
       {"bench kernels --tile-sweep --format json", 2, {"--tile-sweep and --format exclude"}},
       {"bench kernels --list --format json", 2, {"--list and --format exclude"}},
       {"bench kernels --list --op ''", 2, {"--op is ''"}},
       {"bench comm --backends ''", 2, {"--backends is ''"}},
       {"bench comm --ranks ''", 2, {"--ranks is ''", "from 1 to 1024"}},
       {"bench comm --baseline ''", 2, {"--baseline is ''"}},
       {"bench save --dir ''", 2, {"--dir is ''"}},
       {"bench kernels --threads 100000", 78, {"--threads is 100000"}}});  // as engine train
  for (const std::string what : {"step", "scaling", "demos"})
    for (const char* resume : {" --resume", " --resume auto", " --resume=run"})
      expect_mistakes({{"bench " + what + resume, 2, {"--resume: a benchmark starts over"}}});
}

TEST(Usage, PastedDashesAreExplained) {
  expect_mistakes({{"train \u2014lr 3", 2, {"typographic"}}});
}

TEST(Usage, BothSpellingsWork) {
  expect_success(
      engine(logged_train(argv("--log_every 1 --sync_every=1 --sync params --steps 1"))));
}

TEST(Configuration, BadValuesNameOptionValueAndSource) {
  expect_last_error(engine(logged_train(argv("--lr fast"))), 78, {"lr", "fast", "--lr"});
  expect_last_error(engine(logged_train({}), {{"ENGINE_EPOCHS", "-1"}}), 78,
                    {"epochs", "-1", "ENGINE_EPOCHS"});
  const TemporaryDirectory folder;
  test_support::write_text(folder / "run.toml", "momentun = 0.9\n");
  expect_last_error(engine(logged_train({"-c", folder / "run.toml"})), 78,
                    {"run.toml:1", "momentun", "momentum"});
}

TEST(Configuration, PrecedenceIsFlagEnvironmentFileDefault) {
  const TemporaryDirectory folder;
  test_support::write_text(folder / "run.toml", "steps = 3\nlr = 0.5\nseed = 9\n");
  const CommandResult result =
      expect_success(engine(logged_train(argv("-c", folder / "run.toml", "--steps 1")),
                            {{"ENGINE_STEPS", "2"}, {"ENGINE_LR", "0.25"}}));
  program::expect_words(result.out, {"1 in all", "lr 0.25", "seed 9"});
}

TEST(Data, MissingFilesSayWhatWasLookedFor) {
  const TemporaryDirectory folder;
  expect_last_error(call("train --model mlp --dataset mnist --data-dir", folder.path().string()),
                    65, {"train-images", folder.path().string()});
}

TEST(Data, AModelThatDoesNotFitNamesLayerAndBothShapes) {
  const TemporaryDirectory folder;
  test_support::write_text(
      folder / "bad.toml",
      "[[layer]]\nkind = \"conv2d\"\nname = \"big\"\nout_channels = 4\nkernel = 9\n");
  const CommandResult result =
      call("train --model", folder / "bad.toml", "--dataset synthetic --synthetic-shape 6x6x1");
  expect_last_error(result, 78, {"big", "[6, 6, 1]"});
}

TEST(Batch, ThatDoesNotShareOutEvenly) {
  const CommandResult result = engine(logged_train(argv("--batch-size 2 --spawn 3 --uneven drop")));
  expect_last_error(result, 78, {"batch-size 2", "3 ranks"});
}

TEST(Train, PrintsTheLinesAndNoProgressBarIntoAPipe) {
  const CommandResult result = expect_success(engine(logged_train(argv("--epochs 2"))));
  for (const char* line :
       {"Epoch [1/2], Step [2/5], Loss: ", "Epoch [2/2], Step [3/5], Loss: ", "Accuracy: ",
        "Training completed in: 0:00:0", "Test after step 10: loss ",
        "global batch 12 = 1 rank x 1 device x 12 x 1", "1 rank x 1 thread"})
    EXPECT_CONTAINS(result.out, line) << line;
  // The accuracy, the step, then rate and time left.
  const std::size_t last = result.out.rfind("Epoch [");
  const std::string after = result.out.substr(result.out.find('\n', last) + 1);
  EXPECT_TRUE(std::regex_search(after, std::regex("^  [0-9,.]+ images/s, 0:0[01] left\n")))
      << result.out;
  EXPECT_LACKS(result.out, "\r");
  program::expect_error(result, 0, "engine: --save-dir DIR");
  const TemporaryDirectory folder;
  EXPECT_EQ(engine(logged_train({"--save-dir", folder / "run"})).err, "");
}

// Of "$0 ARGUMENTS", where $0 is the program.
CommandResult shell(const std::string& line,
                    const std::map<std::string, std::string>& environment = {}) {
  return run_command(argv("sh -c", line, engine_binary()), environment, 60'000);
}

TEST(Version, OfABuildHasTheCudaToolkitAndWhatKernelsAreCompiledFor) {
  const CommandResult result = expect_success(call("version --build"));
  EXPECT_TRUE(std::regex_search(
      result.out, std::regex("\nCUDA         (none|(played by the CPU|[0-9]+[.][0-9]+[.][0-9]+), "
                             "(sm|compute)_[0-9]+.*)\n")))
      << result.out;
}

TEST(StandardOutput, FullOrClosedEndsEveryCommandWith74) {
  const TemporaryDirectory folder;
  expect_success(engine(logged_train(argv("--save-dir", folder / "run", "--save-every 2s"))));
  const std::string checkpoint = folder / "run/step-00000005.ckpt",
                    earlier = folder / "run/step-00000002.ckpt";
  const std::string train =
      "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
      "--threads 1 --save-dir " +
      (folder / "other");
  for (const std::string& command :
       {std::string("env"), std::string("doctor"), std::string("version"), std::string("help"),
        std::string("train --help all"), train + " --print-config",
        train + " --batch-size 12 --dry-run", "inspect " + checkpoint,
        "verify " + earlier + " " + checkpoint, "eval --threads 1 " + checkpoint, train,
        train + " --spawn 2"}) {
    expect_last_error(shell("\"$0\" " + command + " >/dev/full"), 74,
                      {"standard output: No space left on device"});
    expect_last_error(shell("\"$0\" " + command + " >&-"), 74, {"standard output is closed"});
  }
}

TEST(StandardOutput, IsToldToBeFullBeforeTheFirstStep) {
  const TemporaryDirectory folder;
  const CommandResult result = shell(
      "\"$0\" train --model mlp --dataset synthetic --steps 100000000 --threads 1 "
      "--synthetic-shape 6x6x1 --save-dir " +
      (folder / "run") + " >/dev/full");
  expect_last_error(result, 74, {"standard output"});
}

TEST(EarlyChecks, ComeBeforeDataAndOtherRanks) {
  const TemporaryDirectory folder;
  // Nobody else comes, and there are no data.
  const std::vector<std::string> alone =
      argv("--dataset mnist --data-dir", folder / "none", "--rank 0 --world-size 2 --init-method",
           "file://" + (folder / "meet"), "--rdzv-timeout 300");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), alone.begin(), alone.end());
    more.insert(more.begin(), {"train", "--model", "mlp"});
    return engine(more);
  };
  expect_last_error(with(argv("--threads 1000")), 78,
                    {"--threads is 1000", "this process may use"});
  expect_last_error(with(argv("--threads 1025")), 78, {"from 0 to 1024"});
  expect_last_error(with({"--metrics", folder.path().string()}), 73,
                    {"metrics ", "it is a folder"});
  expect_last_error(with({"--metrics", folder / "no/m.jsonl"}), 73,
                    {"there is no folder " + (folder / "no")});
  EXPECT_FALSE(fs::exists(folder / "no"));
}

TEST(Memory, ThatIsNotThereIsToldBeforeTheStart) {
  const TemporaryDirectory folder;
  test_support::write_text(
      folder / "wide.toml",
      "[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = \"a\"\nout = 60000\n"
      "[[layer]]\nkind = \"dense\"\nname = \"b\"\nout = 10\n");
  // As large as definitions may be: hundreds of matrices of 2^34 numbers.
  std::string vast = "[[layer]]\nkind = \"flatten\"\n";
  for (int i = 0; i < 300; ++i)
    vast += "[[layer]]\nkind = \"dense\"\nname = \"b" + std::to_string(i) + "\"\nout = 131072\n";
  test_support::write_text(folder / "vast.toml",
                           vast + "[[layer]]\nkind = \"dense\"\nname = \"c\"\nout = 10\n");
  const auto train = [&](const char* model, const char* ranks, const char* batch) {
    return call("train --model", folder / model, "--dataset synthetic --spawn", ranks,
                "--synthetic-shape 6x6x1 --synthetic-size 2000000 --batch-size", batch,
                "--threads 1");
  };
  expect_last_error(train("vast.toml", "1", "100"), 69,
                    {"out of memory", "parameters", "not even batches"});
  const CommandResult wide = train("wide.toml", "2", "2000000");
  EXPECT_EQ(wide.exit_code, 69) << wide.err;
  for (const char* part : {"out of memory: batches of 1000000 samples need ", " activations",
                           "for each of 2 ranks", "at most --batch-size-per-device "})
    EXPECT_CONTAINS(wide.err, part) << part;
}

TEST(EarlyChecks, MetricsMayLieInTheFolderThatWillBeMade) {
  const TemporaryDirectory folder;
  expect_success(engine(
      logged_train(argv("--save-dir", folder / "run", "--metrics", folder / "run//m.jsonl"))));
  EXPECT_TRUE(fs::exists(folder / "run/m.jsonl"));
}

TEST(EarlyChecks, AnUnknownVariableIsWarnedOfOnce) {
  const CommandResult result =
      expect_success(engine(logged_train(argv("--spawn 2")), {{"ENGINE_BACTH_SIZE", "3"}}));
  EXPECT_VALUES(result.err, "engine: warning: ENGINE_BACTH_SIZE 'ENGINE_BATCH_SIZE'");
  EXPECT_EQ(result.err.find("ENGINE_BACTH_SIZE"), result.err.rfind("ENGINE_BACTH_SIZE"));
  EXPECT_EQ(engine({"env"}, {{"ENGINE_BACTH_SIZE", "3"}, {"ENGINE_RESTART_COUNT", "0"}}).err, "");
}

TEST(EarlyChecks, AnEmptyVariableOfAnOptionIsWarnedOf) {
  EXPECT_VALUES(engine({"env"}, {{"ENGINE_SAVE_DIR", ""}}).err, "warning ENGINE_SAVE_DIR empty");
}

TEST(EarlyChecks, AnEmptySecretIsWarnedOf) {
  const std::string warning = "warning: ENGINE_SECRET empty, unset:";
  program::expect_error(engine({"env"}, {{"ENGINE_SECRET", ""}}), 0, warning);
  program::expect_error(
      engine({"version"}, {{"ENGINE_SECRET", ""}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}), 0, warning);
  EXPECT_EQ(engine({"env"}, {{"ENGINE_SECRET", ""}, {"ENGINE_SECRET_FILE", "/a"}}).err, "");
}

TEST(Train, AShortRunHasALossLine) {
  const CommandResult result =
      expect_success(engine(logged_train(argv("--steps 3 --log-every 100"))));
  EXPECT_CONTAINS(result.out, "Epoch [1/1], Step [3/3], Loss: ");
}

TEST(Train, MetricsAreJsonLines) {
  const TemporaryDirectory folder;
  expect_success(engine(logged_train({"--metrics", folder / "m.jsonl"})));
  std::ifstream in(folder / "m.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 5u);  // the start, steps 2 and 4, the evaluation, the end
  const char* const events[] = {"start", "step", "step", "eval", "end"};
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_CONTAINS(lines[i], "\"event\":\"" + std::string(events[i]) + "\"");
}

TEST(Train, MetricsSayTheStepsEpochTheTimeAndTheAccuracy) {
  const TemporaryDirectory folder;
  const auto before = static_cast<double>(std::time(nullptr));
  expect_success(engine(logged_train(
      argv("--metrics", folder / "m.jsonl", "--epochs 2 --log-every 1 --eval-every 1e"))));
  std::ifstream in(folder / "m.jsonl");
  int steps = 0, others = 0;
  double last = before - 1;
  for (std::string line; std::getline(in, line);) {
    const auto number = [&line](const std::string& key) {
      const std::size_t at = line.find("\"" + key + "\":");
      return at == std::string::npos ? -1 : std::stod(line.substr(at + key.size() + 3));
    };
    const bool step = line.find("\"event\":\"step\"") != std::string::npos;
    ++(step ? steps : others);
    EXPECT_EQ(number("epoch"), number("step") <= 5 ? 0 : 1) << line;
    EXPECT_GE(number("time"), last) << line;
    last = number("time");
    if (step) {
      EXPECT_GE(number("accuracy"), 0) << line;
      EXPECT_LE(number("accuracy"), 1) << line;
    }
  }
  EXPECT_LE(last, static_cast<double>(std::time(nullptr)) + 1);
  EXPECT_EQ(steps, 10);
  EXPECT_EQ(others, 4);  // the start, two evaluations, the end
}

TEST(Save, AnUnwritableFolderIsFoundBeforeTraining) {
  const TemporaryDirectory folder;
  test_support::write_text(folder / "file", "");
  const CommandResult result = engine(logged_train({"--save-dir", folder / "file"}));
  expect_last_error(result, 73, {folder / "file"});
  EXPECT_EQ(result.out, "");
  expect_last_error(engine(logged_train(argv("--save-dir /proc/nowhere --spawn 2"))), 73,
                    {"/proc/nowhere"});
}

TEST(Save, KeepsTheLastAndPointsToTheNewest) {
  const TemporaryDirectory folder;
  expect_success(
      engine(logged_train(argv("--save-dir", folder / "run", "--save-every 1s --keep-last 2"))));
  int checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(folder / "run"))
    checkpoints += entry.path().extension() == ".ckpt";
  EXPECT_EQ(checkpoints, 2);
  EXPECT_CONTAINS(test_support::read_text(folder / "run/latest"), "step-00000005.ckpt");
}

class Trained : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryDirectory;
    result_ =
        new CommandResult(train("--spawn 2 --backend auto --save-rank-models --save-dir", run()));
  }
  static void TearDownTestSuite() {
    delete folder_;
    delete result_;
  }
  template <class... More>
  static CommandResult train(const More&... more) {
    return engine(test_support::overridden(
        argv(
            "train --model convnet --dataset synthetic --synthetic-shape 8x8x1 --synthetic-size 40 "
            "--batch-size 10 --threads 1"),
        argv(more...)));
  }
  static std::string run() { return *folder_ / "run"; }
  static std::string rank_model(int r) {
    return run() + "/final_model_rank_" + std::to_string(r) + ".ckpt";
  }
  static std::string checkpoint() { return run() + "/step-00000004.ckpt"; }

  static TemporaryDirectory* folder_;
  static CommandResult* result_;
};
TemporaryDirectory* Trained::folder_ = nullptr;
CommandResult* Trained::result_ = nullptr;

TEST_F(Trained, TwoRanksEndInStep) {
  ASSERT_EQ(result_->exit_code, 0) << result_->err;
  program::expect_words(result_->out,
                        {"2 ranks x 1 thread", "global batch 10 = 2 ranks x 1 device x 5 x 1",
                         "gradients 10/10 parameters"});
}

TEST_F(Trained, VerifyListsTheRunningStatisticsOnly) {
  const CommandResult verify = engine({"verify", rank_model(0), rank_model(1)});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_EQ(
      verify.out,
      "layer1.1.running_mean\nlayer1.1.running_var\nlayer2.1.running_mean\nlayer2.1.running_var\n");
  EXPECT_CONTAINS(verify.err,
                  "4 of 16 tensors differ (0 parameters, 4 BatchNorm running "
                  "statistics); in sync except BN");
  expect_success(call("verify --only params", rank_model(0), rank_model(1)));
  expect_success(call("verify --ignore *running_*", rank_model(0), rank_model(1)));
  expect_success(call("verify --atol 100", rank_model(0), rank_model(1)));
  EXPECT_EQ(engine({"verify", rank_model(0), rank_model(0), rank_model(1)}).exit_code, 1);
  expect_success(engine({"verify", rank_model(0), checkpoint()}));
}

TEST_F(Trained, VerifyFormatsTellMore) {
  const CommandResult table = call("verify --format table", rank_model(0), rank_model(1));
  program::expect_words(table.out, {"max |d|", rank_model(1)});
  const CommandResult json = call("verify --format json --max 1", rank_model(0), rank_model(1));
  EXPECT_EQ(
      json.out.find(
          "{\"schema\":1,\"compared\":16,\"differences\":[{\"name\":\"layer1.1.running_mean\""),
      0u)
      << json.out;
  EXPECT_EQ(call("verify -q", rank_model(0), rank_model(1)).out, "");
}

TEST_F(Trained, VerifySaysTroubleWithTwo) {
  EXPECT_EQ(call("verify", rank_model(0), "/no/such.ckpt").exit_code, 2);
  EXPECT_EQ(engine({"verify", rank_model(0), engine_binary()}).exit_code, 2);
  EXPECT_EQ(engine({"verify", rank_model(0)}).exit_code, 2);
}

TEST_F(Trained, InspectShowsWhatIsThere) {
  const CommandResult summary = expect_success(call("inspect --tensors", checkpoint()));
  for (const char* part : {"model    convnet", "step 4: epoch 1, 0 steps into it",
                           "layer1.0.weight", "[16, 1, 5, 5]", "momentum/fc.weight", "cpu:0"})
    EXPECT_CONTAINS(summary.out, part) << part;
  EXPECT_CONTAINS(call("inspect --config", checkpoint()).out, "model = \"convnet\"");
  const CommandResult order = call("inspect --order 0", checkpoint());
  EXPECT_EQ(std::count(order.out.begin(), order.out.end(), '\n'), 40);
}

TEST_F(Trained, EvalGivesTheSameForAnyNumberOfRanks) {
  const CommandResult one = expect_success(call("eval", checkpoint(), "--format json --threads 1"));
  const CommandResult three = expect_success(
      call("eval", checkpoint(), "--format json --spawn 3 --backend inproc --threads 1"));
  const auto counts = [](const std::string& text) { return text.substr(text.find("\"correct\"")); };
  EXPECT_EQ(counts(one.out), counts(three.out));
}

TEST_F(Trained, DamagedAndForeignCheckpointsAreRefused) {
  std::string bytes = test_support::read_text(checkpoint());
  bytes[bytes.size() / 2] ^= 1;
  const std::string damaged = *folder_ / "damaged.ckpt";
  test_support::write_text(damaged, bytes);
  const auto resume = [&](const std::string& path) { return train("--resume", path); };
  expect_last_error(resume(damaged), 65, {damaged});
  expect_last_error(resume(engine_binary()), 65, {engine_binary()});
  expect_last_error(resume("/no/such.ckpt"), 65, {"/no/such.ckpt"});
  expect_last_error(engine(logged_train({"--resume", checkpoint()})), 78,
                    {"was trained with --model convnet, asked for is mlp"});
  EXPECT_EQ(call("inspect --check", damaged).exit_code, 65);
}

TEST_F(Trained, ResumingTwiceFromOneCheckpointGivesTheSameModel) {
  for (const char* name : {"a", "b"}) {
    const CommandResult result = expect_success(train(
        "--resume", checkpoint(), "--epochs 2 --save-rank-models --save-dir", *folder_ / name));
    EXPECT_CONTAINS(result.out, "resumed " + checkpoint() + " at step 4");
  }
  const CommandResult verify = expect_success(call(
      "verify --only all", *folder_ / "a/step-00000008.ckpt", *folder_ / "b/step-00000008.ckpt"));
  EXPECT_EQ(verify.out, "");
}

TEST_F(Trained, ARunThatIsDoneSaysSoAndWhatGoesOn) {
  const auto again = [&](const std::vector<std::string>& more) {
    return train("--batch-size 20 --resume", checkpoint(), more);
  };
  const CommandResult done = expect_success(again({"--epochs", "1"}));
  EXPECT_CONTAINS(done.out,
                  "\nnothing left to do: epoch 1 of 1 is done; --epochs 3 continues it\n");
  EXPECT_LACKS(done.out, "completed");
  EXPECT_CONTAINS(again({"--steps", "4"}).out, "step 4 of 4 is done; --steps 8 continues it\n");
  EXPECT_CONTAINS(again({"--steps", "3"}).out,
                  "step 4 is done, --steps is 3; --steps 8 continues it\n");
  const CommandResult more = expect_success(again({"--epochs", "3", "--log-every", "1"}));
  for (const char* line :
       {"2 steps 8 in all", "Epoch [2/3], Step [1/2], Loss: ", "Epoch [3/3], Step [2/2], Loss: "})
    EXPECT_VALUES(more.out, line);
}

TEST_F(Trained, MapLocationDecidesWhereArraysGo) {
  const auto resume = [&](const std::string& spec) {
    return train("--steps 5 --resume", checkpoint(), "--map-location", spec);
  };
  expect_success(resume("auto"));
  expect_success(resume("cpu:0=cpu"));
  expect_last_error(resume("cpu:0=cuda:1"), 78, {"cpu:0", "cuda:1"});
  expect_last_error(resume("cuda:0=cpu"), 78, {"says nothing about cpu:0"});
}

TEST(Elastic, HasOneDeviceAProcess) {
  expect_last_error(engine(logged_train(argv("--devices cpu:0,cpu:1 --elastic 1:2"))), 78,
                    {"found 2 in --devices", "--spawn 2"});
}

TEST(MapLocation, IsParsedBeforeAnyWork) {
  expect_last_error(engine(logged_train(argv("--map-location gpu7"))), 78, {"gpu7"});
  expect_last_error(engine(logged_train(argv("--map-location cuda:9"))), 78,
                    {"--map-location", "--resume"});
}

// --- ranks that do not come, die or are told to stop
// --------------------------------------------------------------

// Runs a long two-rank training; `act` gets its process and its ranks' when some steps are
// reported.
CommandResult while_training(const std::vector<std::string>& more,
                             const std::function<void(pid_t, const std::vector<int>&)>& act) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "metrics";
  Running job(argv(
      engine_binary(),
      logged_train(argv("--epochs 1000000 --spawn 2 --eval-every 0 --metrics", metrics, more))));
  const auto steps = [&] {
    return fs::exists(metrics) ? std::ranges::count(test_support::read_text(metrics), '\n') : 0;
  };
  std::vector<int> ranks;
  EXPECT_TRUE(test_support::eventually([&] {
    ranks = test_support::workers_of(job.pid());
    return ranks.size() == 2 && steps() > 5;
  })) << job.err();
  if (ranks.size() == 2) act(job.pid(), ranks);
  const int code = job.wait();
  for (const int rank : ranks)
    EXPECT_TRUE(
        test_support::eventually([&] { return test_support::command_line_of(rank).empty(); }));
  return {code, job.out(), job.err()};
}

TEST(Death, AKilledRankEndsTheOthersAndIsNamed) {
  const CommandResult result =
      while_training({}, [](pid_t, const std::vector<int>& ranks) { kill(ranks[1], SIGKILL); });
  EXPECT_EQ(result.exit_code, 137) << result.err;
  program::expect_words(result.err, {"rank 1: killed by signal 9", "rank 0: "});
}

TEST(Death, AfterAKilledRankALineSaysHowToContinue) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  const CommandResult result = while_training(
      argv("--save-dir", run, "--save-every 5s"), [&](pid_t, const std::vector<int>& ranks) {
        EXPECT_TRUE(test_support::eventually([&] { return fs::exists(run + "/latest"); }));
        kill(ranks[1], SIGKILL);
      });
  EXPECT_EQ(result.exit_code, 137) << result.err;
  program::expect_words(result.err, {".ckpt is saved in " + run, "engine train --resume " + run});
}

TEST(Death, WorkersDieWithTheirParent) {
  const CommandResult result =
      while_training({}, [](pid_t parent, const std::vector<int>&) { kill(parent, SIGKILL); });
  EXPECT_EQ(result.exit_code, 137);
}

TEST(Stop, OneInterruptIsOrderlyAndSaves) {
  const TemporaryDirectory folder;
  const CommandResult result =
      while_training(argv("--save-dir", folder / "run", "--save-every 0"),
                     [](pid_t parent, const std::vector<int>&) { kill(parent, SIGINT); });
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_VALUES(result.out, "Stopped signal 2");
  EXPECT_TRUE(fs::exists(folder / "run/latest"));
  EXPECT_NO_THROW(
      static_cast<void>(io::load_checkpoint(io::find_newest_checkpoint(folder / "run", nullptr))));
}

TEST(Rendezvous, AMissingRankIsNamedAndTheWaitEnds) {
  const CommandResult result =
      engine(logged_train(argv("--rank 0 --world-size 3 --rdzv-timeout 7 --init-method",
                               "tcp://127.0.0.1:" + std::to_string(test_support::free_port()))));
  EXPECT_EQ(result.exit_code, 69) << result.err;
  program::expect_words(result.err, {"waiting for", "1, 2"});
}

// Whether the rank has reached the rendezvous on `port` of loopback: rank 0 listens there; for
// another rank this function listens in place of rank 0, accepts its connection and closes it.
bool has_reached_rendezvous(int rank, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  const auto open_socket = [] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); };
  if (rank == 0) {
    return test_support::eventually([&] {
      const int fd = open_socket();
      const bool taken = connect(fd, at, sizeof address) == 0;
      close(fd);
      return taken;
    });
  }
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  bool connected = bind(listener, at, sizeof address) == 0 && listen(listener, 8) == 0;
  connected = connected && test_support::eventually([&] {
                const int peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (peer >= 0) close(peer);
                return peer >= 0;
              });
  close(listener);
  return connected;
}

TEST(Rendezvous, OneInterruptEndsTheWait) {
  for (const int rank : {0, 1}) {  // the rank that waits for others, and one that waits for rank 0
    const int port = test_support::free_port();
    Running waiting(
        argv(engine_binary(),
             logged_train(argv("--world-size 2 --rdzv-timeout 3000 --rank", std::to_string(rank),
                               "--init-method", "tcp://127.0.0.1:" + std::to_string(port)))));
    EXPECT_TRUE(has_reached_rendezvous(rank, port));
    kill(waiting.pid(), SIGINT);
    EXPECT_EQ(waiting.wait(), 130) << waiting.err();
    EXPECT_VALUES(waiting.err(), "stopped waiting");
  }
}

TEST(Rendezvous, RanksWithOtherOptionsAreToldWhichAndBothValues) {
  const TemporaryDirectory folder;
  const auto member = [&](const char* rank, const char* rate) {
    return engine(logged_train(argv("--rank", rank, "--world-size 2 --init-method",
                                    "file://" + (folder / "meet"), "--lr", rate)));
  };
  CommandResult second;
  std::thread late([&] { second = member("1", "0.02"); });
  const CommandResult first = member("0", "0.01");
  late.join();
  for (const CommandResult& result : {first, second}) {
    EXPECT_EQ(result.exit_code, 76) << result.err;
    program::expect_words(result.err, {"engine: error: --lr: rank 0 (host ",
                                       ") has 0.01, rank 1 (host ", ") has 0.02"});
  }
}

TEST(Rendezvous, RanksStartedByHandMeetThroughEnvironmentAndFile) {
  const TemporaryDirectory folder;
  const std::string method = "file://" + (folder / "rendezvous");
  const auto member = [&](int rank) {
    return engine(logged_train(
        {"--rank", std::to_string(rank), "--world-size", "2", "--init-method", method}));
  };
  CommandResult second;
  std::thread late([&] { second = member(1); });
  const CommandResult first = member(0);
  late.join();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out, "");
  EXPECT_FALSE(fs::exists(folder / "rendezvous"));
}

TEST(Env, ShowsValuesWithTheirSources) {
  const CommandResult result = expect_success(engine({"env"}, {{"RANK", "1"},
                                                               {"WORLD_SIZE", "4"},
                                                               {"MASTER_ADDR", "127.0.0.1"},
                                                               {"MASTER_PORT", "29512"}}));
  program::expect_words(result.out, {"WORLD_SIZE", "tcp://127.0.0.1:29512"});
  EXPECT_EQ(engine({"env"}, {{"RANK", "7"}, {"WORLD_SIZE", "4"}}).exit_code, 78);
}

TEST(Env, ASlurmStepInEveryFormat) {
  const std::map<std::string, std::string> step = {{"SLURM_JOB_ID", "4711"},
                                                   {"SLURM_STEP_ID", "0"},
                                                   {"SLURM_PROCID", "0"},
                                                   {"SLURM_LOCALID", "0"},
                                                   {"SLURM_NODEID", "0"},
                                                   {"SLURM_STEP_NUM_TASKS", "4"},
                                                   {"SLURM_STEP_NODELIST", "n[03-04]"},
                                                   {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                                   {"SLURM_CPUS_PER_TASK", "1"},
                                                   {"SLURM_STEP_GPUS", "10,9"}};
  const std::string text = engine({"env"}, step).out;
  program::expect_words(text, {"tcp://n03:12354", "auto                 16 ports tried"});
  if (engine::ops::is_supported(engine::ops::CpuIsa::kBaseline))
    EXPECT_CONTAINS(engine({"env"}, {{"ENGINE_ISA", "baseline"}}).out,
                    "CPU kernels       baseline             no --amp bf16: ");
  const std::string json = engine(argv("env --format json --port-rule jobid"), step).out;
  program::expect_words(
      json, {"\"MASTER_PORT\":{\"value\":\"14712\",\"source\":",
             "\"GPUS\":{\"value\":\"10,9\",\"source\":\"SLURM_STEP_GPUS\"}",
             "\"ENGINE_THREADS\":{\"value\":\"1\",\"source\":\"SLURM_CPUS_PER_TASK\"}"});
  const std::string shell = engine(argv("env --format sh"), step).out;
  EXPECT_CONTAINS(shell, "export MASTER_ADDR='n03'  # SLURM_STEP_NODELIST\n");
  // What the shell reads is what the program resolved.
  const CommandResult again =
      run_command(argv("bash -c", "eval \"$(" + test_support::engine_binary() +
                                      " env --format sh)\"; echo $RANK $WORLD_SIZE $MASTER_PORT"),
                  step, 60'000);
  EXPECT_EQ(again.out, "0 4 12354\n") << again.err;
  EXPECT_CONTAINS(
      engine(argv("env --format json"), {{"ENGINE_RANK", "0"}, {"ENGINE_WORLD_SIZE", "1"}}).out,
      "\"source\":\"ENGINE_RANK\"");
}

TEST(Env, SaysWhyThereIsNoMpi) {
  const std::map<std::string, std::string> nowhere = {{"ENGINE_MPI_LIBRARY", "/nowhere/libmpi.so"}};
  const std::string why = "ENGINE_MPI_LIBRARY /nowhere/libmpi.so:";
  EXPECT_VALUES(engine(argv("env"), nowhere).out, "backend mpi not usable " + why);
  const CommandResult train = engine(
      argv("train --model mlp --dataset synthetic --steps 1 --spawn 2 --backend mpi"), nowhere);
  EXPECT_EQ(train.exit_code, 78);
  EXPECT_VALUES(train.err, "backend mpi " + why);
}

TEST(Train, MpiCannotBeElastic) {
  const CommandResult train =
      call("train --model mlp --dataset synthetic --elastic 2:2 --backend mpi");
  EXPECT_EQ(train.exit_code, 78);
  EXPECT_VALUES(train.err, "--elastic --backend mpi,");
}

TEST(Env, ExpandsHostLists) {
  EXPECT_EQ(call("env --hosts n[01-02]-ib0,alpha").out, "n01-ib0\nn02-ib0\nalpha\n");
  EXPECT_EQ(call("env --hosts n[1-2] --format json").out, "[\"n1\",\"n2\"]\n");
  const CommandResult bad = call("env --hosts n[1-2");
  EXPECT_EQ(bad.exit_code, 78);
  EXPECT_CONTAINS(bad.err, "position 2");
}

TEST(Bench, StepPrintsJson) {
  const CommandResult result =
      expect_success(engine({"bench", "step", "--model", "mlp", "--batch", "10", "--seconds", "0.2",
                             "--format", "json"}));
  EXPECT_CONTAINS(result.out, "\"step_ms\":");
}

// Ranks of one host could never meet: nobody waits for them.
TEST(Cli, WithoutLoopbackRanksOfThisHostEndAtOnce) {
  const CommandResult probe =
      test_support::run_command({"/usr/bin/env", "unshare", "--net", "true"});
  if (probe.exit_code != 0) GTEST_SKIP() << "may not make a network namespace";
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--elastic"}}) {
    std::vector<std::string> command{"/usr/bin/env", "unshare", "--net",
                                     test_support::engine_binary()};
    for (const std::string& argument : program::quick_train({"--spawn", "2"}))
      command.push_back(argument);
    command.insert(command.end(), more.begin(), more.end());
    const CommandResult run = test_support::run_command(command);
    EXPECT_EQ(run.exit_code, 78) << run.err;
    program::expect_words(run.err, {"loopback down (ip link set lo up)"});
  }
}

}  // namespace
