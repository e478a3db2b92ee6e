// The launcher's parsers, line cutting, quoting and wording, without any process.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/commands/restart_resume.h"
#include "tools/launch/nodes/control_line.h"
#include "tools/launch/nodes/launch_options.h"
#include "tools/launch/nodes/launch_plan.h"
#include "tools/launch/nodes/launch_values.h"
#include "tools/launch/nodes/remote_nodes.h"
#include "tools/launch/workers/line_splitter.h"
#include "tools/launch/workers/respawn_pause.h"
#include "tools/launch/workers/worker_failure.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/shell_text.h"

namespace tools {
namespace {

using test_support::error_of;

using Masks = std::vector<unsigned>;

TEST(RestartResume, FollowsWhatTrainIsTold) {
  const auto of = [](std::vector<std::string> command, std::vector<std::string> environment = {}) {
    LaunchOptions options;
    options.restarts.max = 3;
    options.command = std::move(command);
    options.environment = std::move(environment);
    return resume_after_restart(options);
  };
  const std::vector<std::string> resume{"--resume", "auto"}, nothing;
  EXPECT_EQ(of({"train", "--save-dir", "run"}).more, resume);
  EXPECT_EQ(of({"train", "--save_dir=run"}).more, resume);
  EXPECT_CONTAINS(of({"train", "--save-dir", "run"}).notice, "--max-restarts 3: ");
  EXPECT_EQ(of({"train"}, {"ENGINE_SAVE_DIR=run"}).more, resume);
  for (const RestartResume& given :
       {of({"train", "--save-dir", "run", "--resume", "none"}),
        of({"train", "--save-dir", "run"}, {"ENGINE_RESUME=run/step_1.ckpt"}),
        of({"train", "--help"}), of({"train", "--no-such-option"}), of({"train", "-c", "/none"}),
        of({"verify", "a", "b"})}) {
    EXPECT_EQ(given.more, nothing);
    EXPECT_EQ(given.notice, "");
  }
  EXPECT_EQ(of({"train", "--save-dir", "run", "--overwrite"}).more,
            (std::vector<std::string>{"--resume", "none"}));
  EXPECT_EQ(of({"train", "--epochs", "3"}).more, nothing);
  EXPECT_CONTAINS(of({"train"}).notice, "begins from step 0");
  EXPECT_EQ(of({"train", "--save-dir", "auto"}).more, nothing);
  EXPECT_CONTAINS(of({"train", "--save-dir", "auto"}).notice, "in another one");

  const test_support::TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "run");
  test_support::write_text(folder / "run/step-00000001.ckpt", "");
  EXPECT_EQ(of({"train", "--resume", folder / "run"}).more, nothing);
  EXPECT_EQ(of({"train", "--resume", folder / "run"}).notice, "");
  test_support::write_text(folder / "run.toml", "save-dir = 'run'\n");
  EXPECT_EQ(of({"train", "-c", folder / "run.toml"}).more, resume);
  test_support::write_text(folder / "run.toml", "save-dir = 'run'\nresume = 'none'\n");
  EXPECT_EQ(of({"train", "-c", folder / "run.toml"}).more, nothing);
}

TEST(StreamSpec, OneNumberOrSomeRanks) {
  EXPECT_EQ(parse_streams("", 2, "-r"), (Masks{0, 0}));
  EXPECT_EQ(parse_streams("3", 2, "-r"), (Masks{3, 3}));
  EXPECT_EQ(parse_streams("0:1,2:2", 3, "-r"), (Masks{1, 0, 2}));
  EXPECT_EQ(parse_streams("1:0", 2, "-r"), (Masks{0, 0}));
  for (const char* bad : {"4", "-1", "x", "0:4", "0:", ":1", "0:1,0:2", "2:1", "0:1,3", "1 2"}) {
    const std::string text =
        error_of<io::ConfigError>([&] { static_cast<void>(parse_streams(bad, 2, "--tee")); });
    EXPECT_CONTAINS(text, "--tee '" + std::string(bad) + "'");
    EXPECT_CONTAINS(text, "expected");
  }
}

TEST(StreamSpec, RankLists) {
  EXPECT_EQ(parse_rank_list("", 3, "-l"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(parse_rank_list("2,0-1,1", 3, "-l"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(parse_rank_list("2", 3, "-l"), (std::vector<int>{2}));
  for (const char* bad : {"3", "-1", "1-0", "a", "0-3"})
    EXPECT_CONTAINS(
        error_of<io::ConfigError>([&] { static_cast<void>(parse_rank_list(bad, 3, "-l")); }), bad);
}

TEST(NodeCount, OneOrARange) {
  EXPECT_EQ(parse_node_count("3", "--nnodes").max, 3);
  EXPECT_EQ(parse_node_count("2:2", "--nnodes").min, std::nullopt);  // fixed
  EXPECT_EQ(parse_node_count("1:4", "--nnodes").min, 1);
  EXPECT_EQ(parse_node_count("1:4", "--nnodes").max, 4);
  for (const char* bad : {"4:1", "0", "", "two", "1:", "2:2:2"}) {
    SCOPED_TRACE(bad);
    const std::string text =
        error_of<io::ConfigError>([&] { static_cast<void>(parse_node_count(bad, "--nnodes")); });
    EXPECT_CONTAINS(text, "--nnodes");
  }
}

TEST(RespawnPause, DoublesFromFailureToFailureAndForgivesWhoHasWorked) {
  using std::chrono::milliseconds, std::chrono::seconds;
  RespawnPause pause;
  for (const int expected : {250, 500, 1000, 2000, 4000, 8000, 16'000, 32'000, 32'000, 32'000})
    EXPECT_EQ(pause.next(milliseconds(10)), milliseconds(expected));
  EXPECT_EQ(pause.next(seconds(60)), seconds(32));
  EXPECT_EQ(pause.next(seconds(61)), milliseconds(250));
  EXPECT_EQ(pause.next(seconds(0)), milliseconds(500));
  for (int i = 0; i < 100; ++i) EXPECT_LE(pause.next(seconds(1)), seconds(32));
}

TEST(RespawnPause, IsNeverLongerThanAsked) {
  using std::chrono::milliseconds;
  RespawnPause second(milliseconds(1000)), shorter(milliseconds(100));
  for (const int expected : {250, 500, 1000, 1000})
    EXPECT_EQ(second.next(milliseconds(10)), milliseconds(expected));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(shorter.next(milliseconds(10)), milliseconds(100));
}

std::vector<std::string> cut(const std::vector<std::string>& parts, int seconds_between = 0) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  auto now = LineSplitter::Clock::time_point(std::chrono::hours(1));
  for (const std::string& part : parts) {
    splitter.feed(part, now, sink);
    now += std::chrono::seconds(seconds_between);
  }
  splitter.finish(sink);
  return lines;
}

TEST(LineSplitter, LinesStayWholeHoweverTheyArrive) {
  using L = std::vector<std::string>;
  EXPECT_EQ(cut({"a\nb\n"}), (L{"a", "b"}));
  EXPECT_EQ(cut({"he", "ll", "o\n", "\n", "end"}), (L{"hello", "", "end"}));
  EXPECT_EQ(cut({"dos\r\n", "dos\r", "\nunix\n"}), (L{"dos", "dos", "unix"}));
}

TEST(LineSplitter, AProgressBarIsShownNowAndThen) {
  using L = std::vector<std::string>;
  EXPECT_EQ(cut({"x\n10 %\r20 %\r30 %\rdone\n"}), (L{"x", "done"}));
  EXPECT_EQ(cut({"x\n1 %\r", "2 %\r", "3 %\r", "4 %\r", "done\n"}, 3),
            (L{"x", "2 %", "4 %", "done"}));
  EXPECT_EQ(cut({"99 %\r"}), (L{"99 %"}));
}

TEST(LineSplitter, AnEndlessLineIsCut) {
  const std::vector<std::string> lines = cut({std::string((2 << 20) + 5, 'x') + "\n"});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].size(), 1u << 20);
  EXPECT_EQ(lines[2], "xxxxx");
}

TEST(HostFile, NamesSlotsComments) {
  const test_support::TemporaryDirectory folder;
  std::string slots;
  test_support::write_text(folder / "good", "# two\nn1 slots=4\n\n  n2   slots=4 # rack 2\n");
  EXPECT_EQ(read_host_file(folder / "good", slots), (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(slots, "4");
  test_support::write_text(folder / "uneven", "n1 slots=4\nn2\n");
  EXPECT_CONTAINS(error_of<io::ConfigError>([&] { read_host_file(folder / "uneven", slots); }),
                  "uneven:2");
  test_support::write_text(folder / "words", "n1 four\n");
  EXPECT_CONTAINS(error_of<io::ConfigError>([&] { read_host_file(folder / "words", slots); }),
                  "words:1");
  EXPECT_CONTAINS(error_of<io::MissingFileError>([&] { read_host_file(folder / "none", slots); }),
                  "none");
}

TEST(Options, OwnOnesEndWhereTheCommandBegins) {
  const auto o = parse_launch_options({"--nproc_per_node=2", "-r3", "--env", "A=1", "--env=B=2",
                                       "train", "--sync_every", "--log-dir"});
  ASSERT_TRUE(o.has_value());
  EXPECT_EQ(o->nproc_per_node, "2");
  EXPECT_EQ(o->output.redirects, "3");
  EXPECT_EQ(o->environment, (std::vector<std::string>{"A=1", "B=2"}));
  EXPECT_EQ(o->command, (std::vector<std::string>{"train", "--sync_every", "--log-dir"}));
  const auto p = parse_launch_options({"--max_restarts", "2", "--", "--odd", "--", "x"});
  ASSERT_TRUE(p.has_value());
  EXPECT_EQ(p->restarts.max, 2);
  EXPECT_EQ(p->command, (std::vector<std::string>{"--odd", "--", "x"}));
}

TEST(Options, EnvironmentFillsWhatWasNotSaid) {
  setenv("PET_NPROC_PER_NODE", "3", 1);
  setenv("PET_MAX_RESTARTS", "7", 1);
  setenv("ENGINE_MAX_RESTARTS", "5", 1);
  const auto o = parse_launch_options({"--nproc-per-node", "2", "true"});
  EXPECT_EQ(o->nproc_per_node, "2");
  EXPECT_EQ(o->restarts.max, 5);
  setenv("ENGINE_MAX_RESTARTS", "many", 1);
  EXPECT_CONTAINS(error_of<io::ConfigError>([] { parse_launch_options({"true"}); }),
                  "ENGINE_MAX_RESTARTS 'many'");
  for (const char* name : {"PET_NPROC_PER_NODE", "PET_MAX_RESTARTS", "ENGINE_MAX_RESTARTS"})
    unsetenv(name);
}

TEST(Options, AnAddressMayHaveItsBrackets) {
  const auto o = parse_launch_options({"--nnodes", "2", "--master-addr", "[::1]", "true"});
  EXPECT_EQ(o->rendezvous.master_addr, "::1");
}

TEST(Quoting, AnyWordSurvivesAShell) {
  EXPECT_EQ(shell_quoted("plain"), "'plain'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
  const std::string odd = "a b'c\"d$HOME`id`\\ *;|&\n#é";
  const auto echoed = test_support::run_command({"sh", "-c", "printf %s " + shell_quoted(odd)});
  EXPECT_EQ(echoed.out, odd);
}

TEST(Remote, OneLineForTheOtherShellAndNoSecretInIt) {
  LaunchOptions o;
  o.nodes.hosts = {"n1.example", "me@n2"};
  o.nodes.count = 2;
  o.nproc_per_node = "4";
  o.environment = {"GREETING=it's"};
  o.command = {"train", "--model", "a b"};
  LaunchPlan plan;
  plan.nnodes = 2;
  plan.master_addr = "n1.example";
  plan.master_port = 12345;
  plan.run_id = "job7";
  const std::vector<std::string> words = node_command(o, plan, 1, "/opt/engine", "/data");
  ASSERT_EQ(words.size(), 11u);
  EXPECT_EQ(words[0], "ssh");
  EXPECT_EQ(words[8], "--");
  EXPECT_EQ(words[9], "me@n2");
  EXPECT_EQ(words[10].find("'/opt/engine' 'launch' '--controlled-by-stdin' '--directory' '/data' "
                           "'--nnodes' '2' '--node-rank' '1'"),
            0u);
  EXPECT_CONTAINS(words[10], "'--env' 'GREETING=it'\\''s'");
  EXPECT_CONTAINS(words[10], "'--' 'train' '--model' 'a b'");
}

TEST(Remote, OnlyTheWhitelistTravels) {
  setenv("ENGINE_SECRET", std::string(32, '1').c_str(), 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("SECRET_TOKEN_OF_MINE", "x", 1);
  bool debug = false;
  for (const std::string& variable : variables_for_other_hosts()) {
    debug |= variable == "NCCL_DEBUG=INFO";
    EXPECT_FALSE(variable.starts_with("ENGINE_SECRET") || variable.starts_with("SECRET") ||
                 variable.starts_with("HOME="))
        << variable;
  }
  EXPECT_TRUE(debug);
  for (const char* name : {"ENGINE_SECRET", "NCCL_DEBUG", "SECRET_TOKEN_OF_MINE"}) unsetenv(name);
}

TEST(Remote, ASignalInTheSameReadAsTheSetupIsNotLost) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string records = control_record("env", "ENGINE_LAUNCH_TEST=a b") +
                              control_record("secret", "abcd") + control_record("go") +
                              control_record("signal", "15");
  ASSERT_EQ(write(ends[1], records.data(), records.size()), static_cast<ssize_t>(records.size()));
  ControlLine control(ends[0]);
  control.receive_setup();
  EXPECT_EQ(control.secret(), "abcd");
  EXPECT_STREQ(std::getenv("ENGINE_LAUNCH_TEST"), "a b");
  unsetenv("ENGINE_LAUNCH_TEST");
  SignalInbox inbox;
  control.report_to(inbox, true);
  EXPECT_EQ(inbox.take(), SIGTERM);
  EXPECT_EQ(inbox.take(), std::nullopt);
  close(ends[1]);
  std::vector<pollfd> polls;
  control.add_to(polls);
  ASSERT_EQ(poll(polls.data(), 1, 1000), 1);
  control.handle(polls);
  EXPECT_EQ(inbox.take(), SIGKILL);  // the other end is gone
  close(ends[0]);
}

TEST(Environment, OfAWorker) {
  setenv("RANK", "77", 1);
  setenv("SLURM_PROCID", "5", 1);
  setenv("ENGINE_RANK", "6", 1);
  LaunchPlan plan;
  plan.nnodes = 3;
  plan.node_rank = 2;
  plan.nproc = 4;
  plan.master_addr = "n0";
  plan.master_port = 29500;
  plan.common_run_id = false;
  const std::vector<std::string> all = worker_environment(plan, 1, 6, {"X=1"}, {"X=2"});
  const auto has = [&](const std::string& entry) {
    return std::find(all.begin(), all.end(), entry) != all.end();
  };
  for (const char* entry :
       {"RANK=9", "WORLD_SIZE=12", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "NODE_RANK=2",
        "GROUP_RANK=2", "MASTER_ADDR=n0", "MASTER_PORT=29500", "ENGINE_RESTART_COUNT=6",
        "TORCHELASTIC_RESTART_COUNT=6", "TORCHELASTIC_RUN_ID=none", "X=2"})
    EXPECT_TRUE(has(entry)) << entry;
  EXPECT_FALSE(has("SLURM_PROCID=5"));
  EXPECT_FALSE(has("ENGINE_RANK=6"));
  for (const char* name : {"RANK", "SLURM_PROCID", "ENGINE_RANK"}) unsetenv(name);
}

TEST(Failure, Words) {
  WorkerFailure f;
  f.host = "n7";
  f.rank = 3;
  f.pid = 42;
  f.code = 65;
  f.last_line = "engine: error: bad \"file\"";
  EXPECT_VALUES(failure_line(f), "rank 3 n7 pid 42 code 65 bad \"file\"");
  EXPECT_CONTAINS(failure_json(f), "\"message\":\"engine: error: bad \\\"file\\\"\"}");
  f.code = 137;
  f.signal = 9;
  f.last_line.clear();
  f.log = "/l/stderr";
  EXPECT_VALUES(failure_line(f), "rank 3 n7 pid 42 signal 9 (Killed); no output log: /l/stderr");
}

TEST(Failure, SomeCannotBeMendedByARestart) {
  for (const int code : {2, 65, 75, 77, 78, 79, 126, 127})
    EXPECT_FALSE(is_worth_restarting(code)) << code;
  for (const int code : {1, 69, 70, 74, 76, 137, 139})
    EXPECT_TRUE(is_worth_restarting(code)) << code;
}

}  // namespace
}  // namespace tools
