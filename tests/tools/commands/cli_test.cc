// The real binary, as a user or a script meets it: exit codes, one-line errors, nothing
// half-written, no orphan.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "io/base/text/text_parts.h"
#include "io/checkpoint/checkpoint.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"

namespace {

using test_support::CommandResult;
using test_support::engine;
using test_support::engine_binary;
using test_support::run_command;
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
    EXPECT_EQ(last.find("engine: error: "), std::string::npos) << "not the last: " << result.err;
    const bool notice = line.starts_with("engine: changed: ") || line.starts_with("verify: ") ||
                        line.starts_with("engine: nothing will be saved") ||
                        line.find(" ranks share ") != std::string::npos;
    EXPECT_TRUE(notice || line.starts_with("engine: error: ")) << result.err;
    last = line;
  }
  EXPECT_EQ(last.find("engine: error: "), 0u) << result.err;
  for (const std::string& word : words)
    EXPECT_NE(result.err.find(word), std::string::npos) << "'" << word << "' in: " << result.err;
}

TEST(Help, EveryCommandExplainsItself) {
  for (const char* command :
       {"train", "launch", "verify", "eval", "predict", "bench", "report", "top", "inspect",
        "export", "import", "sample", "doctor", "env", "version", "completion"}) {
    const CommandResult help = engine({command, "--help"});
    EXPECT_EQ(help.exit_code, 0) << command << help.err;
    EXPECT_NE(help.out.find("Usage: engine " + std::string(command)), std::string::npos)
        << help.out;
    EXPECT_EQ(engine({"help", command}).out, help.out);
  }
  EXPECT_EQ(engine({"help"}).exit_code, 0);
  EXPECT_EQ(engine({}).exit_code, 2);
}

TEST(Top, ShowsARunThatHasEnded) {
  const test_support::TemporaryDirectory folder;
  const std::string run = folder / "run";
  expect_last_error(
      engine({"top", run}), 65,
      {"is neither the folder of a run", "nor a rendezvous, HOST:PORT or file://PATH"});
  const CommandResult trained =
      engine({"train", "--model", "mlp", "--dataset", "synthetic", "--limit", "64", "--epochs", "2",
              "--batch-size", "16", "--threads", "1", "--spawn", "2", "--save-dir", run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const CommandResult top = engine({"top", run});
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_NE(top.out.find(": mlp on synthetic, completed\nstep 8 of 8, epoch 2 of 2 | loss "),
            std::string::npos)
      << top.out;
  EXPECT_NE(top.out.find("newest snapshot: step-00000008.ckpt\n"), std::string::npos) << top.out;
  const CommandResult json = engine({"top", run, "--json"});
  EXPECT_EQ(json.out.find("{\"schema\":1,\"run\":\""), 0u) << json.out;
}

// One rank of a job on random data, until it ends or is killed.
std::thread in_background(std::vector<std::string> job, const std::string& rank) {
  job.insert(job.begin(), {"--rank", rank});
  return std::thread([arguments = logged_train(job)] { (void)engine(arguments); });
}

// By the rendezvous file, and by what is in it: "at HOST:PORT", "secret HEX".
TEST(Top, FollowsAJobThatSavesNothing) {
  const TemporaryDirectory folder;
  const std::string meet = folder / "meet";
  std::vector<CommandResult> results(2);
  std::vector<std::thread> ranks;
  for (const std::size_t rank : {0u, 1u})
    ranks.emplace_back([&, rank] {
      std::vector<std::string> arguments =
          logged_train({"--rank", std::to_string(rank), "--world-size", "2", "--init-method",
                        "file://" + meet, "--epochs", "1000000"});
      arguments.insert(arguments.begin(), engine_binary());
      results[rank] = run_command(arguments, {}, 60'000);
    });
  CommandResult top;
  EXPECT_TRUE(test_support::eventually([&] {
    top = engine({"top", "file://" + meet, "--json"});
    return top.exit_code == 0 && top.out.find("\"step\":0,") == std::string::npos;
  })) << top.err;
  EXPECT_EQ(top.out.find("{\"schema\":1,\"run\":\""), 0u) << top.out;
  EXPECT_NE(top.out.find("\"state\":\"training\""), std::string::npos) << top.out;
  EXPECT_NE(top.out.find("{\"rank\":1,\"host\":\""), std::string::npos) << top.out;

  std::string word, address, secret;
  std::istringstream text(test_support::read_text(meet));
  while (text >> word) {
    if (word == "at") text >> address;
    if (word == "secret") text >> secret;
  }
  const CommandResult by_address =
      run_command({engine_binary(), "top", address, "--once"}, {{"ENGINE_SECRET", secret}});
  EXPECT_EQ(by_address.exit_code, 0) << by_address.err;
  EXPECT_NE(by_address.out.find(": mlp on synthetic, training\n"), std::string::npos)
      << by_address.out;
  const CommandResult stranger =
      run_command({engine_binary(), "top", address}, {{"ENGINE_SECRET", std::string(64, '0')}});
  expect_last_error(stranger, 77,
                    {"has not proved that it has the secret of this command", "a job of --spawn",
                     "follow it by its folder"});

  for (const pid_t pid : test_support::workers_of(getpid())) kill(pid, SIGTERM);
  for (std::thread& rank : ranks) rank.join();
  for (const CommandResult& result : results) EXPECT_EQ(result.exit_code, 143) << result.err;
  expect_last_error(engine({"top", address}, {{"ENGINE_SECRET", secret}}), 69,
                    {"no job to follow at " + address});
}

TEST(Top, WaitsForAJobWhoseRanksHaveNotAllCome) {
  const TemporaryDirectory folder;
  const std::string meet = folder / "meet";
  const std::vector<std::string> job{"--world-size",   "2",        "--init-method",
                                     "file://" + meet, "--epochs", "1000000"};
  CommandResult top;
  std::vector<std::thread> others;
  others.push_back(in_background(job, "0"));
  EXPECT_TRUE(test_support::eventually([&] { return std::filesystem::exists(meet); }));
  others.emplace_back([&] { top = engine({"top", "file://" + meet, "--once"}); });
  test_support::pause(std::chrono::milliseconds(500));
  others.push_back(in_background(job, "1"));
  others[1].join();
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_NE(top.err.find("waiting for rank 1 to join the job"), std::string::npos) << top.err;
  EXPECT_NE(top.out.find(": mlp on synthetic, training\n"), std::string::npos) << top.out;
  for (const pid_t pid : test_support::workers_of(getpid())) kill(pid, SIGTERM);
  others[0].join();
  others[2].join();
}

// Which of two ranks that have begun to train are killed at once, and what top says then.
CommandResult top_after_killing(const std::vector<std::string>& killed,
                                const std::vector<std::string>& arguments) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  const std::vector<std::string> job{
      "--world-size", "2",       "--init-method", "file://" + (folder / "meet"),
      "--epochs",     "1000000", "--save-dir",    run};
  std::vector<std::thread> ranks;
  for (const char* rank : {"0", "1"}) ranks.push_back(in_background(job, rank));
  EXPECT_TRUE(test_support::eventually([&] {
    return engine({"top", run}).out.find(" images/s | ") != std::string::npos;
  }));
  for (const pid_t pid : test_support::workers_of(getpid())) {
    const std::string line = test_support::command_line_of(pid);
    for (const std::string& rank : killed)
      if (line.find(std::string("--rank\0", 7) + rank) != std::string::npos) kill(pid, SIGKILL);
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<std::string> command{"top", run};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return engine(command);
}

TEST(Top, SaysWhyARunFailed) {
  const CommandResult top = top_after_killing({"1"}, {});
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_NE(top.out.find(": mlp on synthetic, failed\n"), std::string::npos) << top.out;
  const std::size_t cause = top.out.find("\ncause: ");
  ASSERT_NE(cause, std::string::npos) << top.out;
  EXPECT_NE(top.out.find("rank 1 (host ", cause), std::string::npos) << top.out;
  EXPECT_EQ(top.out.find(" left"), std::string::npos) << top.out;
}

TEST(Top, SaysThatAKilledRunHasEnded) {
  const CommandResult top = top_after_killing({"0", "1"}, {"--json"});
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_NE(top.out.find("\"state\":\"ended without saying so\",\"cause\":\"process "),
            std::string::npos)
      << top.out;
}

TEST(Top, MakesNoSecret) {
  const TemporaryDirectory home;
  const CommandResult top = engine({"top", "127.0.0.1:1"}, {{"HOME", home.path().string()},
                                                            {"XDG_CONFIG_HOME", ""},
                                                            {"ENGINE_SECRET", ""},
                                                            {"ENGINE_SECRET_FILE", ""}});
  expect_last_error(top, 77, {"no secret found", home / ".config/engine/secret"});
  EXPECT_TRUE(std::filesystem::is_empty(home.path()));
}

TEST(Top, SaysWhatAPlaceLacks) {
  expect_last_error(engine({"top", "http://127.0.0.1:29500"}), 2,
                    {"http://127.0.0.1:29500: expected a run's folder, HOST:PORT"});
  expect_last_error(engine({"top", "file://"}), 2, {"file:// names no file"});
  expect_last_error(engine({"top", ""}), 2, {"is empty"});
}

TEST(Help, ShowsTheMostUsedOptionsFirst) {
  const std::string help = engine({"train", "--help"}).out;
  for (const char* option : {"--model NAME", "--lr F", "--spawn N", "--save-dir DIR"})
    EXPECT_NE(help.find(option), std::string::npos) << option;
  EXPECT_EQ(help.find("--powersgd-rank"), std::string::npos);
  const std::string all = engine({"train", "--help", "all"}).out;
  EXPECT_NE(all.find("--powersgd-rank R"), std::string::npos);
  EXPECT_NE(all.find("\nAveraging\n"), std::string::npos);
  const std::string group = engine({"train", "--help", "preempt"}).out;
  EXPECT_NE(group.find("--preempt-signal"), std::string::npos);
  EXPECT_EQ(group.find("--lr"), std::string::npos);
  EXPECT_EQ(engine({"help", "train", "preempt"}).out, group);
}

TEST(Help, ExplainsOneOption) {
  const std::string help = engine({"train", "--help", "sync-every"}).out;
  for (const char* part : {"--sync-every K", "(default: 1)", "ENGINE_SYNC_EVERY", "[sync]",
                           "must have the same value", "--sync params --sync-every 8"})
    EXPECT_NE(help.find(part), std::string::npos) << part << " in:\n" << help;
  EXPECT_EQ(engine({"train", "--help", "--sync_every"}).out, help);
  expect_last_error(engine({"train", "--help", "sync-evry"}), 2,
                    {"no help for 'sync-evry'", "did you mean 'sync-every'"});
}

TEST(Help, FitsTheTerminal) {
  for (const int columns : {40, 80, 100}) {
    const CommandResult help =
        engine({"train", "--help", "all"}, {{"COLUMNS", std::to_string(columns)}});
    for (const std::string& line : base::split_text(help.out, '\n')) {
      const bool is_example = line.find("engine train --") != std::string::npos;  // to be copied
      EXPECT_TRUE(is_example || line.size() <= static_cast<std::size_t>(columns)) << line;
    }
  }
}

TEST(Help, SaysWhichSwitchesAreOn) {
  const std::string help = engine({"train", "--help", "all"}).out;
  for (const std::string name : {"shuffle", "pin-memory", "non-blocking", "outer-nesterov"}) {
    const std::size_t at = help.find("--[no-]" + name);
    ASSERT_NE(at, std::string::npos) << name;
    const std::size_t next = help.find("\n  --", at);
    EXPECT_LT(help.find("(default: on)", at), next) << name;
  }
}

TEST(Usage, UnknownNamesSuggestTheNearest) {
  expect_last_error(engine({"trian"}), 2, {"unknown command 'trian'", "did you mean 'train'"});
  expect_last_error(engine(logged_train({"--sync-evry", "3"})), 2, {"--sync-evry", "--sync-every"});
  expect_last_error(engine(logged_train({"--batch_sise=3"})), 2, {"--batch-sise", "--batch-size"});
  expect_last_error(engine({"train", "--model", "convnt", "--dataset", "synthetic"}), 78,
                    {"convnt", "convnet"});
  expect_last_error(engine({"train", "--model", "mlp", "--dataset", "mnits"}), 78,
                    {"mnits", "mnist"});
}

TEST(Usage, OptionsOfOtherProgramsAreAnsweredWithOurs) {
  expect_last_error(engine(logged_train({"--learning-rate", "0.1"})), 2,
                    {"unknown option '--learning-rate': here it is --lr"});
  expect_last_error(engine(logged_train({"--max_steps=10"})), 2, {"here it is --steps"});
  expect_last_error(engine(logged_train({"--nproc_per_node", "2"})), 2,
                    {"here it is --spawn, or engine launch --nproc-per-node"});
  expect_last_error(engine(logged_train({"--output-dir", "x"})), 2, {"here it is --save-dir"});
  expect_last_error(engine(logged_train({"--test-batch-size", "9"})), 2,
                    {"'--test-batch-size': there is none; evaluation takes 64 samples"});
  for (const char* command : {"predict", "eval", "launch"})
    expect_last_error(engine({command, "--learning-rate", "0.1"}), 2,
                      {"unknown option '--learning-rate': here it is --lr, of engine train"});
  expect_last_error(engine({"launch", "--num-nodes", "2", "train"}), 2,
                    {"unknown option '--num-nodes': here it is --nnodes ("});
}

TEST(Usage, MistakesAreSaidAsSentences) {
  expect_last_error(engine({"train", "--model", "mlp", "--lr"}), 2, {"--lr needs a value"});
  for (const std::vector<std::string>& next :
       {std::vector<std::string>{"--momentum", "0.9"}, {"--momentum=0.9"}, {"-c", "x.toml"}}) {
    std::vector<std::string> arguments{"train", "--model", "mlp", "--lr"};
    arguments.insert(arguments.end(), next.begin(), next.end());
    expect_last_error(engine(arguments), 2,
                      {"--lr needs a value, but " + next[0].substr(0, next[0].find('=')) +
                       " comes after it (engine train --help)"});
  }
  expect_last_error(engine({"train", "--save_dir", "--resume"}), 2,
                    {"--save-dir needs a value, but --resume comes after it"});
  expect_last_error(engine({"launch", "--nnodes", "--", "train"}), 2,
                    {"--nnodes needs a value, but -- comes after it"});
  expect_last_error(engine({"launch", "--nnodes", "--standalone", "train"}), 2,
                    {"--nnodes needs a value, but --standalone comes after it"});
  expect_last_error(engine(logged_train({"--lr", "-1"})), 78, {"--lr is '-1'"});
  expect_last_error(engine({"bench"}), 2, {"engine bench needs WHAT, which is step|scaling|"});
  expect_last_error(engine({"train", "mlp", "glyphs"}), 2, {"unexpected arguments: mlp glyphs"});
  expect_last_error(engine({"eval", "r", "--split", "tset"}), 2,
                    {"--split is 'tset': did you mean 'test'? (expected one of "});
  expect_last_error(engine({"sample", "r", "--prompt", "a", "--temperature", "-1"}), 2,
                    {"--temperature is '-1'; expected a number of 0 or more"});
  expect_last_error(engine({"sample", "r", "--prompt", "a", "--threads", "-1"}), 2,
                    {"--threads is '-1'; expected a whole number from 0 to 1024"});
  expect_last_error(engine({"bench", "step", "--steps", "0"}), 2,
                    {"--steps is '0'; expected a whole number from 1 to "});
  expect_last_error(engine({"train", "--config", ""}), 78, {"--config is empty"});
  expect_last_error(engine({"top", "r", "--every", "0"}), 2,
                    {"--every is '0'; expected a number from 0.1 to 3600 (engine top --help)"});
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
  const auto told = [](const std::vector<std::string>& arguments, const std::string& what) {
    program::expect_words(engine(arguments).err, {"engine: " + what + ": the last counts"});
  };
  told({"train", "--lr", "0.1", "--lr=0.2", "--model", "x"},
       "--lr is given twice, as '0.1' and as '0.2'");
  told({"train", "--steps", "1", "--sync_every", "2", "--sync-every", "3", "--model", "x"},
       "--sync-every is given twice, as '2' and as '3'");
  told({"train", "-c", "a.toml", "--config", "b.toml"},
       "--config is given twice, as 'a.toml' and as 'b.toml'");
  told({"launch", "--nnodes", "1", "--nnodes", "x", "train"},
       "--nnodes is given twice, as '1' and as 'x'");
  told({"bench", "step", "--warmup", "1", "--warmup", "2", "--model", "x"},
       "--warmup is given twice, as '1' and as '2'");
  told({"verify", "a", "b", "--format", "json", "--format", "table"},
       "--format is given twice, as 'json' and as 'table'");
  expect_last_error(engine({"train", "--no-shuffle", "--seed", "1", "--shuffle"}), 2,
                    {"--shuffle and --no-shuffle are both given: give one of them"});
}

TEST(Usage, OfTwoValuesTheLastIsTaken) {
  const CommandResult other =
      engine(program::quick_train({"--log-every", "2", "--steps", "9", "--lr", "7", "--momentum",
                                   "0.5", "--lr", "0.1", "--steps", "1"}));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_NE(other.out.find("lr 0.1 "), std::string::npos) << other.out;
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
  expect_last_error(engine({"train", "--shuffle=maybe"}), 2,
                    {"--shuffle is 'maybe'; it takes no value: expected --shuffle alone"});
  expect_last_error(engine({"bench", "comm", "--check=false"}), 2,
                    {"--check is 'false'; it takes no value: leave it out"});
  expect_last_error(engine({"train", "--shuffle=false", "--shuffle"}), 2,
                    {"--shuffle and --no-shuffle are both given"});
}

TEST(Usage, OneValueMayBeGivenAgainAndListsMayGrow) {
  const TemporaryDirectory folder;
  const std::string file = folder / "run.toml";
  test_support::write_text(file, "lr = 0.5\nshuffle = true\n");
  const CommandResult result =
      engine(logged_train({"--steps", "1", "--lr", "0.1", "--lr", "0.10", "--no-shuffle",
                           "--no-shuffle", "-c", file, "--config", file}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("lr 0.1 "), std::string::npos) << result.out;
  EXPECT_EQ(engine({"bench", "kernels", "--list", "--set", "gemm", "--sizes", "64", "--sizes", "80",
                    "--batch", "8", "--batch", "8"})
                .exit_code,
            0);
}

// As engine train reads its own: 0x10 is no number, and 010 is no octal 8.
TEST(Usage, EveryCommandReadsNumbersAlike) {
  using Words = std::vector<std::string>;
  const auto refused = [](Words arguments, const Words& values) {
    const std::string option = arguments.back();
    arguments.emplace_back();
    for (const std::string& value : values) {
      arguments.back() = value;
      expect_last_error(engine(arguments), 2, {option + " is '" + value + "'; expected a "});
    }
  };
  for (const Words& command : {Words{"top", "r", "--every"},
                               {"verify", "a", "b", "--rtol"},
                               {"verify", "a", "b", "--atol"},
                               {"sample", "r", "--prompt", "a", "--temperature"},
                               {"bench", "step", "--seconds"},
                               {"bench", "scaling", "--seconds"},
                               {"bench", "kernels", "--seconds"},
                               {"bench", "io", "--seconds"},
                               {"bench", "comm", "--seconds"},
                               {"bench", "comm", "--tolerance"}})
    refused(command, {"nan", "-NaN", "inf", "-1", "0x1p3", "1e3x", " 1", "1,5", ""});
  for (const Words& command : {Words{"verify", "a", "b", "--ulp"},
                               {"verify", "a", "b", "--max"},
                               {"sample", "r", "--prompt", "a", "--count"},
                               {"sample", "r", "--prompt", "a", "--top-k"},
                               {"sample", "r", "--prompt", "a", "--seed"},
                               {"sample", "r", "--prompt", "a", "--threads"},
                               {"predict", "r", "x.png", "--top"},
                               {"inspect", "a.ckpt", "--order"},
                               {"report", "r", "--port"},
                               {"report", "r", "--worst"},
                               {"bench", "step", "--batch"},
                               {"bench", "step", "--ranks"},
                               {"bench", "step", "--steps"},
                               {"bench", "step", "--warmup"},
                               {"bench", "scaling", "--batch"},
                               {"bench", "scaling", "--steps"},
                               {"bench", "scaling", "--warmup"},
                               {"bench", "demos", "--limit-steps"},
                               {"bench", "kernels", "--sizes"},
                               {"bench", "kernels", "--batch"},
                               {"bench", "kernels", "--threads"},
                               {"bench", "save", "--rounds"},
                               {"bench", "io", "--rounds"},
                               {"bench", "verify", "--mb"},
                               {"bench", "verify", "--rounds"},
                               {"bench", "comm", "--iters"},
                               {"bench", "comm", "--warmup"}})
    refused(command, {"abc", "0x10", "1e3", "1.5", "-1", "+1", " 5", "99999999999999999999"});
  const std::string eight = engine({"bench", "kernels", "--list", "--batch", "8"}).out;
  EXPECT_NE(eight, engine({"bench", "kernels", "--list", "--batch", "010"}).out);
  EXPECT_EQ(engine({"bench", "kernels", "--list", "--batch", "10"}).out,
            engine({"bench", "kernels", "--list", "--batch", "010"}).out);
}

// A measurement must not be another one than what was asked for.
TEST(Usage, ABenchmarkDropsNoOption) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& why) {
    arguments.insert(arguments.begin(), "bench");
    expect_last_error(engine(arguments), 2, {why});
  };
  refused({"step", "--steps", "5", "--seconds", "2"},
          "--seconds and --steps exclude each other; give only one");
  refused({"step", "--ranks", "2", "--spawn", "1"}, "--spawn and --ranks exclude each other");
  refused({"step", "--batch", "8", "--batch-size", "64"},
          "--batch-size and --batch exclude each other");
  refused({"scaling", "--steps", "5", "--seconds", "2"}, "--seconds and --steps exclude");
  refused({"comm", "--ranks", "2", "--spawn", "4"}, "--spawn and --ranks exclude each other");
  refused({"kernels", "--set", "conv", "--sizes", "512"},
          "--sizes is for --set gemm, and this is --set conv");
  refused({"kernels", "--cuts", "--format", "json"}, "--cuts and --format exclude each other");
  refused({"kernels", "--list", "--format", "json"}, "--list and --format exclude each other");
  refused({"kernels", "--list", "--op", ""}, "--op is ''; expected parts of names");
  refused({"comm", "--backends", ""}, "--backends is ''; expected names with commas between them");
  refused({"comm", "--ranks", ""}, "--ranks is ''; expected numbers from 1 to 1024, as 2,4");
  refused({"comm", "--baseline", ""}, "--baseline is ''; expected a file");
  refused({"save", "--dir", ""}, "--dir is ''; expected a folder");
  for (const std::vector<std::string>& resume :
       {std::vector<std::string>{"--resume"}, {"--resume", "auto"}, {"--resume=run"}})
    for (const char* what : {"step", "scaling", "demos"}) {
      std::vector<std::string> arguments{what};
      arguments.insert(arguments.end(), resume.begin(), resume.end());
      refused(arguments, "--resume: a benchmark begins anew, saves nothing");
    }
  expect_last_error(engine({"bench", "kernels", "--threads", "100000"}), 78,
                    {"--threads is 100000, but this process may use "});  // as engine train has it
}

TEST(Usage, PastedDashesAreExplained) {
  expect_last_error(engine(logged_train({"\u2014lr", "3"})), 2, {"typographic"});
}

TEST(Usage, BothSpellingsWork) {
  EXPECT_EQ(engine(logged_train(
                       {"--log_every", "1", "--sync_every=1", "--sync", "params", "--steps", "1"}))
                .exit_code,
            0);
}

TEST(Configuration, BadValuesNameOptionValueAndSource) {
  expect_last_error(engine(logged_train({"--lr", "fast"})), 78, {"lr", "fast", "--lr"});
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
  const CommandResult result = engine(logged_train({"-c", folder / "run.toml", "--steps", "1"}),
                                      {{"ENGINE_STEPS", "2"}, {"ENGINE_LR", "0.25"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("1 in all"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("lr 0.25"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("seed 9"), std::string::npos) << result.out;
}

TEST(Data, MissingFilesSayWhatWasLookedFor) {
  const TemporaryDirectory folder;
  expect_last_error(engine({"train", "--model", "mlp", "--dataset", "mnist", "--data-dir",
                            folder.path().string()}),
                    65, {"train-images", folder.path().string()});
}

TEST(Data, AModelThatDoesNotFitNamesLayerAndBothShapes) {
  const TemporaryDirectory folder;
  test_support::write_text(
      folder / "bad.toml",
      "[[layer]]\nkind = \"conv2d\"\nname = \"big\"\nout_channels = 4\nkernel = 9\n");
  const CommandResult result = engine({"train", "--model", folder / "bad.toml", "--dataset",
                                       "synthetic", "--synthetic-shape", "6x6x1"});
  expect_last_error(result, 78, {"big", "[6, 6, 1]"});
}

TEST(Batch, ThatDoesNotShareOutEvenly) {
  const CommandResult result =
      engine(logged_train({"--batch-size", "2", "--spawn", "3", "--uneven", "drop"}));
  expect_last_error(result, 78, {"batch-size 2", "3 ranks"});
}

TEST(Train, PrintsTheLinesAndNoProgressBarIntoAPipe) {
  const CommandResult result = engine(logged_train({"--epochs", "2"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* line :
       {"Epoch [1/2], Step [2/5], Loss: ", "Epoch [2/2], Step [3/5], Loss: ", "Accuracy: ",
        "Training completed in: 0:00:0", "Test after step 10: loss ",
        "global batch 12 = 1 rank x 1 device x 12 x 1", "1 rank x 1 thread"})
    EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  // The accuracy, the step, then rate and time left.
  const std::size_t last = result.out.rfind("Epoch [");
  const std::string after = result.out.substr(result.out.find('\n', last) + 1);
  EXPECT_TRUE(std::regex_search(after, std::regex("^  [0-9,.]+ images/s, 0:0[01] left\n")))
      << result.out;
  EXPECT_EQ(result.out.find('\r'), std::string::npos);
  EXPECT_EQ(result.err, "engine: nothing will be saved: give --save-dir DIR to keep the model\n");
  const TemporaryDirectory folder;
  EXPECT_EQ(engine(logged_train({"--save-dir", folder / "run"})).err, "");
}

// Of "$0 ARGUMENTS", where $0 is the program.
CommandResult shell(const std::string& line,
                    const std::map<std::string, std::string>& environment = {}) {
  return run_command({"sh", "-c", line, engine_binary()}, environment, 60'000);
}

TEST(Version, OfABuildHasTheCudaToolkitAndWhatKernelsAreCompiledFor) {
  const CommandResult result = engine({"version", "--build"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::regex_search(
      result.out, std::regex("\nCUDA         (none|(played by the CPU|[0-9]+[.][0-9]+[.][0-9]+), "
                             "(sm|compute)_[0-9]+.*)\n")))
      << result.out;
}

TEST(StandardOutput, FullOrClosedEndsEveryCommandWith74) {
  const TemporaryDirectory folder;
  ASSERT_EQ(engine(logged_train({"--save-dir", folder / "run", "--save-every", "2s"})).exit_code,
            0);
  const std::string snapshot = folder / "run/step-00000005.ckpt",
                    earlier = folder / "run/step-00000002.ckpt";
  const std::string train =
      "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
      "--threads 1 --save-dir " +
      (folder / "other");
  for (const std::string& command :
       {std::string("env"), std::string("doctor"), std::string("version"), std::string("help"),
        std::string("train --help all"), train + " --print-config",
        train + " --batch-size 12 --dry-run", "inspect " + snapshot,
        "verify " + earlier + " " + snapshot, "eval --threads 1 " + snapshot, train,
        train + " --spawn 2"}) {
    expect_last_error(shell("\"$0\" " + command + " >/dev/full"), 74,
                      {"cannot write to standard output: No space left on device"});
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
  const std::vector<std::string> alone{"--dataset",      "mnist",
                                       "--data-dir",     folder / "none",
                                       "--rank",         "0",
                                       "--world-size",   "2",
                                       "--init-method",  "file://" + (folder / "meet"),
                                       "--rdzv-timeout", "300"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), alone.begin(), alone.end());
    more.insert(more.begin(), {"train", "--model", "mlp"});
    return engine(more);
  };
  expect_last_error(with({"--threads", "1000"}), 78, {"--threads is 1000", "this process may use"});
  expect_last_error(with({"--threads", "1025"}), 78, {"from 0 to 1024"});
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
    return engine({"train", "--model", folder / model, "--dataset", "synthetic", "--spawn", ranks,
                   "--synthetic-shape", "6x6x1", "--synthetic-size", "2000000", "--batch-size",
                   batch, "--threads", "1"});
  };
  expect_last_error(train("vast.toml", "1", "100"), 69,
                    {"out of memory", "parameters", "not even batches"});
  const CommandResult wide = train("wide.toml", "2", "2000000");
  EXPECT_EQ(wide.exit_code, 69) << wide.err;
  for (const char* part : {"out of memory: batches of 1000000 samples need ", " activations",
                           "for each of 2 ranks", "at most --batch-size-per-device "})
    EXPECT_NE(wide.err.find(part), std::string::npos) << part << ": " << wide.err;
}

TEST(EarlyChecks, MetricsMayLieInTheFolderThatWillBeMade) {
  const TemporaryDirectory folder;
  const CommandResult result =
      engine(logged_train({"--save-dir", folder / "run", "--metrics", folder / "run//m.jsonl"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::exists(folder / "run/m.jsonl"));
}

TEST(EarlyChecks, AnUnknownVariableIsWarnedOfOnce) {
  const CommandResult result = engine(logged_train({"--spawn", "2"}), {{"ENGINE_BACTH_SIZE", "3"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string warning =
      "engine: warning: ENGINE_BACTH_SIZE in the environment is no variable of this program: did "
      "you mean 'ENGINE_BATCH_SIZE'?\n";
  const std::size_t at = result.err.find(warning);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("ENGINE_BACTH_SIZE", at + warning.size()), std::string::npos);
  EXPECT_EQ(engine({"env"}, {{"ENGINE_BACTH_SIZE", "3"}, {"ENGINE_RESTART_COUNT", "0"}}).err, "");
}

TEST(EarlyChecks, AnEmptySecretIsWarnedOf) {
  const std::string warning =
      "engine: warning: ENGINE_SECRET is set, but empty, and counts as unset: expected the job's "
      "secret\n";
  EXPECT_EQ(engine({"env"}, {{"ENGINE_SECRET", ""}}).err, warning);
  EXPECT_EQ(engine({"version"}, {{"ENGINE_SECRET", ""}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}).err,
            warning);
  EXPECT_EQ(engine({"env"}, {{"ENGINE_SECRET", ""}, {"ENGINE_SECRET_FILE", "/a"}}).err, "");
}

TEST(Train, AShortRunHasALossLine) {
  const CommandResult result = engine(logged_train({"--steps", "3", "--log-every", "100"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("Epoch [1/1], Step [3/3], Loss: "), std::string::npos) << result.out;
}

TEST(Train, MetricsAreJsonLines) {
  const TemporaryDirectory folder;
  EXPECT_EQ(engine(logged_train({"--metrics", folder / "m.jsonl"})).exit_code, 0);
  std::ifstream in(folder / "m.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 5u);  // the start, steps 2 and 4, the evaluation, the end
  const char* const events[] = {"start", "step", "step", "eval", "end"};
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_NE(lines[i].find("\"event\":\"" + std::string(events[i]) + "\""), std::string::npos)
        << lines[i];
}

TEST(Train, MetricsSayTheStepsEpochTheTimeAndTheAccuracy) {
  const TemporaryDirectory folder;
  const auto before = static_cast<double>(std::time(nullptr));
  EXPECT_EQ(engine(logged_train({"--metrics", folder / "m.jsonl", "--epochs", "2", "--log-every",
                                 "1", "--eval-every", "1e"}))
                .exit_code,
            0);
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
  expect_last_error(engine(logged_train({"--save-dir", "/proc/nowhere", "--spawn", "2"})), 73,
                    {"/proc/nowhere"});
}

TEST(Save, KeepsTheLastAndPointsToTheNewest) {
  const TemporaryDirectory folder;
  EXPECT_EQ(
      engine(logged_train({"--save-dir", folder / "run", "--save-every", "1s", "--keep-last", "2"}))
          .exit_code,
      0);
  int snapshots = 0;
  for (const auto& entry : fs::directory_iterator(folder / "run"))
    snapshots += entry.path().extension() == ".ckpt";
  EXPECT_EQ(snapshots, 2);
  EXPECT_NE(test_support::read_text(folder / "run/latest").find("step-00000005.ckpt"),
            std::string::npos);
}

class Trained : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryDirectory;
    std::vector<std::string> arguments{"train",      "--model",
                                       "convnet",    "--dataset",
                                       "synthetic",  "--synthetic-shape",
                                       "8x8x1",      "--synthetic-size",
                                       "40",         "--batch-size",
                                       "10",         "--spawn",
                                       "2",          "--backend",
                                       "auto",       "--threads",
                                       "1",          "--save-rank-models",
                                       "--save-dir", run()};
    result_ = new CommandResult(engine(arguments));
  }
  static void TearDownTestSuite() {
    delete folder_;
    delete result_;
  }
  static std::string run() { return *folder_ / "run"; }
  static std::string rank_model(int r) {
    return run() + "/final_model_rank_" + std::to_string(r) + ".ckpt";
  }
  static std::string snapshot() { return run() + "/step-00000004.ckpt"; }

  static TemporaryDirectory* folder_;
  static CommandResult* result_;
};
TemporaryDirectory* Trained::folder_ = nullptr;
CommandResult* Trained::result_ = nullptr;

TEST_F(Trained, TwoRanksEndInStep) {
  ASSERT_EQ(result_->exit_code, 0) << result_->err;
  EXPECT_NE(result_->out.find("2 ranks x 1 thread"), std::string::npos) << result_->out;
  EXPECT_NE(result_->out.find("global batch 10 = 2 ranks x 1 device x 5 x 1"), std::string::npos)
      << result_->out;
  EXPECT_NE(result_->out.find("averaged the gradients of 10/10 parameters"), std::string::npos)
      << result_->out;
}

TEST_F(Trained, VerifyListsTheRunningStatisticsOnly) {
  const CommandResult verify = engine({"verify", rank_model(0), rank_model(1)});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_EQ(
      verify.out,
      "layer1.1.running_mean\nlayer1.1.running_var\nlayer2.1.running_mean\nlayer2.1.running_var\n");
  EXPECT_NE(verify.err.find("4 of 16 tensors differ (0 parameters, 4 BatchNorm running "
                            "statistics); in sync except BN"),
            std::string::npos)
      << verify.err;
  EXPECT_EQ(engine({"verify", "--only", "params", rank_model(0), rank_model(1)}).exit_code, 0);
  EXPECT_EQ(engine({"verify", "--ignore", "*running_*", rank_model(0), rank_model(1)}).exit_code,
            0);
  EXPECT_EQ(engine({"verify", "--atol", "100", rank_model(0), rank_model(1)}).exit_code, 0);
  EXPECT_EQ(engine({"verify", rank_model(0), rank_model(0), rank_model(1)}).exit_code, 1);
  EXPECT_EQ(engine({"verify", rank_model(0), snapshot()}).exit_code, 0);
}

TEST_F(Trained, VerifyFormatsTellMore) {
  const CommandResult table = engine({"verify", "--format", "table", rank_model(0), rank_model(1)});
  EXPECT_NE(table.out.find("max |d|"), std::string::npos);
  EXPECT_NE(table.out.find(rank_model(1)), std::string::npos);
  const CommandResult json =
      engine({"verify", "--format", "json", "--max", "1", rank_model(0), rank_model(1)});
  EXPECT_EQ(
      json.out.find(
          "{\"schema\":1,\"compared\":16,\"differences\":[{\"name\":\"layer1.1.running_mean\""),
      0u)
      << json.out;
  EXPECT_EQ(engine({"verify", "-q", rank_model(0), rank_model(1)}).out, "");
}

TEST_F(Trained, VerifySaysTroubleWithTwo) {
  EXPECT_EQ(engine({"verify", rank_model(0), "/no/such.ckpt"}).exit_code, 2);
  EXPECT_EQ(engine({"verify", rank_model(0), engine_binary()}).exit_code, 2);
  EXPECT_EQ(engine({"verify", rank_model(0)}).exit_code, 2);
}

TEST_F(Trained, InspectShowsWhatIsThere) {
  const CommandResult summary = engine({"inspect", "--tensors", snapshot()});
  EXPECT_EQ(summary.exit_code, 0) << summary.err;
  for (const char* part : {"model    convnet", "step 4: epoch 1, 0 steps into it",
                           "layer1.0.weight", "[16, 1, 5, 5]", "momentum/fc.weight", "cpu:0"})
    EXPECT_NE(summary.out.find(part), std::string::npos) << part << "\n" << summary.out;
  EXPECT_NE(engine({"inspect", "--config", snapshot()}).out.find("model = \"convnet\""),
            std::string::npos);
  const CommandResult order = engine({"inspect", "--order", "0", snapshot()});
  EXPECT_EQ(std::count(order.out.begin(), order.out.end(), '\n'), 40);
}

TEST_F(Trained, EvalGivesTheSameForAnyNumberOfRanks) {
  const CommandResult one = engine({"eval", snapshot(), "--format", "json", "--threads", "1"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const CommandResult three = engine({"eval", snapshot(), "--format", "json", "--spawn", "3",
                                      "--backend", "inproc", "--threads", "1"});
  ASSERT_EQ(three.exit_code, 0) << three.err;
  const auto counts = [](const std::string& text) { return text.substr(text.find("\"correct\"")); };
  EXPECT_EQ(counts(one.out), counts(three.out));
}

TEST_F(Trained, DamagedAndForeignSnapshotsAreRefused) {
  std::string bytes = test_support::read_text(snapshot());
  bytes[bytes.size() / 2] ^= 1;
  const std::string damaged = *folder_ / "damaged.ckpt";
  test_support::write_text(damaged, bytes);
  const std::vector<std::string> same{
      "train", "--model",          "convnet", "--dataset",    "synthetic", "--synthetic-shape",
      "8x8x1", "--synthetic-size", "40",      "--batch-size", "10",        "--threads",
      "1",     "--resume"};
  const auto resume = [&](const std::string& path) {
    std::vector<std::string> arguments = same;
    arguments.push_back(path);
    return engine(arguments);
  };
  expect_last_error(resume(damaged), 65, {damaged});
  expect_last_error(resume(engine_binary()), 65, {engine_binary()});
  expect_last_error(resume("/no/such.ckpt"), 65, {"/no/such.ckpt"});
  expect_last_error(engine(logged_train({"--resume", snapshot()})), 78,
                    {"was trained with --model convnet, asked for is mlp"});
  EXPECT_EQ(engine({"inspect", "--check", damaged}).exit_code, 65);
}

TEST_F(Trained, ResumingTwiceFromOneSnapshotGivesTheSameModel) {
  for (const char* name : {"a", "b"}) {
    const CommandResult result = engine({"train",      "--model",
                                         "convnet",    "--dataset",
                                         "synthetic",  "--synthetic-shape",
                                         "8x8x1",      "--synthetic-size",
                                         "40",         "--batch-size",
                                         "10",         "--threads",
                                         "1",          "--resume",
                                         snapshot(),   "--epochs",
                                         "2",          "--save-rank-models",
                                         "--save-dir", *folder_ / name});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("resumed " + snapshot() + " at step 4"), std::string::npos);
  }
  const CommandResult verify = engine({"verify", "--only", "all", *folder_ / "a/step-00000008.ckpt",
                                       *folder_ / "b/step-00000008.ckpt"});
  EXPECT_EQ(verify.exit_code, 0) << verify.out;
  EXPECT_EQ(verify.out, "");
}

TEST_F(Trained, ARunThatIsDoneSaysSoAndWhatGoesOn) {
  const auto again = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "train", "--model",          "convnet", "--dataset",    "synthetic", "--synthetic-shape",
        "8x8x1", "--synthetic-size", "40",      "--batch-size", "20",        "--threads",
        "1",     "--resume",         snapshot()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return engine(arguments);
  };
  const CommandResult done = again({"--epochs", "1"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_NE(done.out.find("\nnothing left to do: epoch 1 of 1 is done; --epochs 3 goes on\n"),
            std::string::npos)
      << done.out;
  EXPECT_EQ(done.out.find("completed"), std::string::npos) << done.out;
  EXPECT_NE(again({"--steps", "4"}).out.find("step 4 of 4 is done; --steps 8 goes on\n"),
            std::string::npos);
  EXPECT_NE(again({"--steps", "3"}).out.find("step 4 is done, --steps is 3; --steps 8 goes on\n"),
            std::string::npos);
  const CommandResult more = again({"--epochs", "3", "--log-every", "1"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  for (const char* line : {"2 steps an epoch, 8 in all",
                           "Epoch [2/3], Step [1/2], Loss: ", "Epoch [3/3], Step [2/2], Loss: "})
    EXPECT_NE(more.out.find(line), std::string::npos) << line << "\n" << more.out;
}

TEST_F(Trained, MapLocationDecidesWhereArraysGo) {
  const auto resume = [&](const std::string& spec) {
    return engine({"train", "--model", "convnet", "--dataset", "synthetic", "--synthetic-shape",
                   "8x8x1", "--synthetic-size", "40", "--batch-size", "10", "--threads", "1",
                   "--steps", "5", "--resume", snapshot(), "--map-location", spec});
  };
  EXPECT_EQ(resume("auto").exit_code, 0);
  EXPECT_EQ(resume("cpu:0=cpu").exit_code, 0);
  expect_last_error(resume("cpu:0=cuda:1"), 78, {"cpu:0", "cuda:1"});
  expect_last_error(resume("cuda:0=cpu"), 78, {"says nothing about cpu:0"});
}

TEST(MapLocation, IsParsedBeforeAnyWork) {
  expect_last_error(engine(logged_train({"--map-location", "gpu7"})), 78, {"gpu7"});
  EXPECT_EQ(engine(logged_train({"--map-location", "cuda:0=cpu", "--steps", "1"})).exit_code, 0);
}

// --- ranks that do not come, die or are told to stop
// --------------------------------------------------------------

int processes_of(const std::string& mark) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string line =
        test_support::command_line_of(std::atoi(entry.path().filename().c_str()));
    count += line.find(mark) != std::string::npos && line.find("engine") != std::string::npos;
  }
  return count;
}

// Starts a long two-rank training in a thread; `act` gets the parent's pid and runs while it
// trains: some steps are reported then.
CommandResult while_training(const std::string& mark, const std::vector<std::string>& more,
                             const std::function<void(pid_t)>& act) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "metrics";
  CommandResult result;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    std::vector<std::string> arguments =
        logged_train({"--epochs", "1000000", "--spawn", "2", "--eval-every", "0", "--job-id", mark,
                      "--metrics", metrics});
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.begin(), engine_binary());
    result = run_command(arguments, {}, 40'000);
    ended = true;
  });
  const auto steps = [&] {
    return fs::exists(metrics) ? std::ranges::count(test_support::read_text(metrics), '\n') : 0;
  };
  pid_t parent = 0;
  const bool trains = test_support::eventually([&] {
    for (const pid_t pid : test_support::workers_of(getpid()))
      if (test_support::workers_of(pid).size() == 2) parent = pid;
    return ended || (parent != 0 && steps() > 5);
  });
  EXPECT_TRUE(trains);
  if (parent != 0) act(parent);
  runner.join();
  EXPECT_NE(parent, 0) << result.err;
  return result;
}

std::string unique_mark(const char* what) {
  return std::string("cli-") + what + "-" + std::to_string(getpid());
}

TEST(Death, AKilledRankEndsTheOthersWithinSecondsAndIsNamed) {
  const std::string mark = unique_mark("death");
  std::chrono::steady_clock::time_point killed;
  const CommandResult result = while_training(mark, {}, [&](pid_t parent) {
    killed = std::chrono::steady_clock::now();
    kill(test_support::workers_of(parent).back(), SIGKILL);
  });
  EXPECT_FALSE(test_support::is_past(killed, std::chrono::seconds(8)));
  EXPECT_EQ(result.exit_code, 137) << result.err;
  EXPECT_NE(result.err.find("rank 1: killed by signal 9"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("rank 0: "), std::string::npos) << result.err;
  EXPECT_EQ(processes_of(mark), 0);
}

TEST(Death, AfterAKilledRankALineSaysHowToContinue) {
  const std::string mark = unique_mark("continue");
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  const CommandResult result =
      while_training(mark, {"--save-dir", run, "--save-every", "5s"}, [&](pid_t parent) {
        EXPECT_TRUE(test_support::eventually([&] { return fs::exists(run + "/latest"); }));
        kill(test_support::workers_of(parent).back(), SIGKILL);
      });
  EXPECT_EQ(result.exit_code, 137) << result.err;
  EXPECT_NE(
      result.err.find(".ckpt is saved in " + run + "; to continue: engine train --resume " + run),
      std::string::npos)
      << result.err;
}

TEST(Death, WorkersDieWithTheirParent) {
  const std::string mark = unique_mark("parent");
  while_training(mark, {}, [&](pid_t parent) { kill(parent, SIGKILL); });
  EXPECT_TRUE(test_support::eventually([&] { return processes_of(mark) == 0; }));
}

TEST(Stop, OneInterruptIsOrderlyAndSaves) {
  const TemporaryDirectory folder;
  const CommandResult result =
      while_training(unique_mark("stop"), {"--save-dir", folder / "run", "--save-every", "0"},
                     [](pid_t parent) { kill(parent, SIGINT); });
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_NE(result.out.find("Stopped by signal 2 after step"), std::string::npos) << result.out;
  EXPECT_TRUE(fs::exists(folder / "run/latest"));
  EXPECT_NO_THROW(
      static_cast<void>(io::load_checkpoint(io::find_newest_checkpoint(folder / "run", nullptr))));
}

TEST(Rendezvous, AMissingRankIsNamedAndTheWaitEnds) {
  const CommandResult result =
      engine(logged_train({"--rank", "0", "--world-size", "3", "--init-method",
                           "tcp://127.0.0.1:29817", "--rdzv-timeout", "7"}));
  EXPECT_EQ(result.exit_code, 69) << result.err;
  EXPECT_NE(result.err.find("waiting for"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("1, 2"), std::string::npos) << result.err;
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
    CommandResult result;
    std::thread runner([&] {
      std::vector<std::string> arguments =
          logged_train({"--rank", std::to_string(rank), "--world-size", "2", "--init-method",
                        "tcp://127.0.0.1:29818", "--rdzv-timeout", "300"});
      arguments.insert(arguments.begin(), engine_binary());
      result = run_command(arguments, {}, 60'000);
    });
    EXPECT_TRUE(has_reached_rendezvous(rank, 29818));
    const auto begin = std::chrono::steady_clock::now();
    for (const pid_t pid : test_support::workers_of(getpid())) kill(pid, SIGINT);
    runner.join();
    EXPECT_FALSE(test_support::is_past(begin, std::chrono::seconds(5)));
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_NE(result.err.find("stopped while waiting for the other ranks"), std::string::npos)
        << result.err;
  }
}

TEST(Rendezvous, RanksWithOtherOptionsAreToldWhichAndBothValues) {
  const TemporaryDirectory folder;
  const auto member = [&](const char* rank, const char* rate) {
    return engine(logged_train({"--rank", rank, "--world-size", "2", "--init-method",
                                "file://" + (folder / "meet"), "--lr", rate}));
  };
  CommandResult second;
  std::thread late([&] { second = member("1", "0.02"); });
  const CommandResult first = member("0", "0.01");
  late.join();
  for (const CommandResult& result : {first, second}) {
    EXPECT_EQ(result.exit_code, 76) << result.err;
    EXPECT_NE(result.err.find("engine: error: --lr: rank 0 (host "), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find(") has 0.01, rank 1 (host "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(") has 0.02"), std::string::npos) << result.err;
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
  const CommandResult result = engine(
      {"env"},
      {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29512"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("WORLD_SIZE"), std::string::npos);
  EXPECT_NE(result.out.find("tcp://127.0.0.1:29512"), std::string::npos) << result.out;
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
  EXPECT_NE(text.find("tcp://n03:12354"), std::string::npos) << text;
  EXPECT_NE(text.find("auto                 16 ports tried"), std::string::npos) << text;
  const std::string old = engine({"env"}, {{"ENGINE_ISA", "baseline"}}).out;
  EXPECT_NE(old.find("CPU kernels       baseline             no --amp bf16: "), std::string::npos);
  const std::string json = engine({"env", "--format", "json", "--port-rule", "jobid"}, step).out;
  EXPECT_NE(json.find("\"MASTER_PORT\":{\"value\":\"14712\",\"source\":"), std::string::npos)
      << json;
  EXPECT_NE(json.find("\"GPUS\":{\"value\":\"10,9\",\"source\":\"SLURM_STEP_GPUS\"}"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"ENGINE_THREADS\":{\"value\":\"1\",\"source\":\"SLURM_CPUS_PER_TASK\"}"),
            std::string::npos)
      << json;
  const std::string shell = engine({"env", "--format", "sh"}, step).out;
  EXPECT_NE(shell.find("export MASTER_ADDR='n03'  # SLURM_STEP_NODELIST\n"), std::string::npos)
      << shell;
  // What the shell reads is what the program resolved.
  const CommandResult again =
      run_command({"bash", "-c",
                   "eval \"$(" + test_support::engine_binary() +
                       " env --format sh)\"; echo $RANK $WORLD_SIZE $MASTER_PORT"},
                  step, 60'000);
  EXPECT_EQ(again.out, "0 4 12354\n") << again.err;
  EXPECT_NE(engine({"env", "--format", "json"}, {{"ENGINE_RANK", "0"}, {"ENGINE_WORLD_SIZE", "1"}})
                .out.find("\"source\":\"ENGINE_RANK\""),
            std::string::npos);
}

TEST(Env, SaysWhereTheMpiPluginIsOrWasLookedFor) {
  const test_support::TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "bin");
  std::filesystem::create_directories(folder / "lib/engine");
  const std::string program = folder / "bin/engine",
                    place =
                        std::filesystem::canonical(folder.path()) / "lib/engine/libengine_mpi.so";
  std::filesystem::copy_file(test_support::engine_binary(), program);
  const CommandResult none = run_command({program, "env"});
  EXPECT_NE(none.out.find("backend mpi       plug-in, not found   no /"), std::string::npos)
      << none.out;
  EXPECT_NE(none.out.find("bin/libengine_mpi.so or " + place + "\n"), std::string::npos)
      << none.out;
  test_support::write_text(place, "");
  const CommandResult found = run_command({program, "env"});
  EXPECT_NE(found.out.find("backend mpi       plug-in, found       " + place + "\n"),
            std::string::npos)
      << found.out;
}

TEST(Env, ExpandsHostLists) {
  EXPECT_EQ(engine({"env", "--hosts", "n[01-02]-ib0,alpha"}).out, "n01-ib0\nn02-ib0\nalpha\n");
  EXPECT_EQ(engine({"env", "--hosts", "n[1-2]", "--format", "json"}).out, "[\"n1\",\"n2\"]\n");
  const CommandResult bad = engine({"env", "--hosts", "n[1-2"});
  EXPECT_EQ(bad.exit_code, 78);
  EXPECT_NE(bad.err.find("position 2"), std::string::npos) << bad.err;
}

TEST(Bench, StepPrintsJson) {
  const CommandResult result = engine(
      {"bench", "step", "--model", "mlp", "--batch", "10", "--seconds", "0.2", "--format", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("\"step_ms\":"), std::string::npos) << result.out;
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
    program::expect_words(
        run.err, {"cannot be reached: the loopback interface is down (ip link set lo up)"});
  }
}

}  // namespace
