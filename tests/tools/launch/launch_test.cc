// `engine launch` from the user's side: the workers' environment and output, failures, restarts,
// usage.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/launch/launch_runner.h"

namespace {

using test_support::argv;
using test_support::CommandResult;
using test_support::eventually;
using test_support::expect_success;
using test_support::last_line;
using test_support::launch;
using test_support::Running;
using test_support::TemporaryDirectory;
using test_support::wait_for_end_of;
namespace fs = std::filesystem;

CommandResult launch_shell(int workers, const std::string& script,
                           std::vector<std::string> more = {}, int timeout_ms = 60'000) {
  more.insert(more.end(),
              {"--nproc-per-node", std::to_string(workers), "--", "bash", "-c", script});
  return launch(more, {}, timeout_ms);
}

TEST(Workers, GetTheVariablesOfTheRun) {
  const CommandResult r =
      expect_success(launch_shell(2,
                                  "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE "
                                  "$NODE_RANK $GROUP_RANK $MASTER_ADDR $ENGINE_RESTART_COUNT "
                                  "$TORCHELASTIC_RUN_ID $EXTRA",
                                  {"--rdzv-id", "job5", "--env", "EXTRA=a b"}));
  EXPECT_CONTAINS(r.out, ":0: 0 2 0 2 0 0 127.0.0.1 0 job5 a b\n");
  EXPECT_CONTAINS(r.out, ":1: 1 2 1 2 0 0 127.0.0.1 0 job5 a b\n");
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1)
      << r.err;  // the choice of OMP_NUM_THREADS, once
  EXPECT_CONTAINS(r.err, "OMP_NUM_THREADS=");
}

TEST(Workers, KeepTheUsersNumberOfThreads) {
  const CommandResult r =
      launch(argv("--nproc-per-node 2 -- bash -c", std::string("echo t=$OMP_NUM_THREADS")),
             {{"OMP_NUM_THREADS", "3"}});
  EXPECT_CONTAINS(r.out, "t=3");
  EXPECT_EQ(r.err, "");
}

TEST(Workers, ShareAPrivateSecretThatIsGoneAfterwards) {
  const TemporaryDirectory folder;
  const CommandResult r =
      launch(argv("--nproc-per-node 2 -- bash -c",
                  std::string("stat -c '%a %s' $ENGINE_SECRET_FILE; secret=$(cat "
                              "$ENGINE_SECRET_FILE); echo id=$(echo $secret | cksum); "
                              "grep -c $secret /proc/$PPID/cmdline /proc/$$/cmdline; tr '\\0' "
                              "'\\n' < /proc/$$/environ | grep -c $secret; true")),
             {{"XDG_RUNTIME_DIR", folder.path().string()}});
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 10) << r.out;
  std::istringstream lines(r.out);
  std::set<std::string> identities;
  int modes = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string text = line.substr(line.find(": ") + 2);
    modes += text == "600 64";
    if (text.starts_with("id=")) identities.insert(text);
    if (text.starts_with("/proc/")) {
      EXPECT_TRUE(text.ends_with(":0")) << text;
    }
  }
  EXPECT_EQ(modes, 2) << r.out;
  EXPECT_EQ(identities.size(), 1u) << r.out;
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Workers, APortThatWasKeptForThemCanBeBoundAndIsGivenToNobodyElse) {
  if (test_support::run_command({"python3", "-c", ""}).exit_code != 0) GTEST_SKIP() << "no python3";
  const TemporaryDirectory folder;
  test_support::write_text(
      folder / "serve.py",
      "import os, socket\n"
      "port = int(os.environ['MASTER_PORT'])\n"
      "others = [socket.create_server(('127.0.0.1', 0)).getsockname()[1] for _ in range(200)]\n"
      "server = socket.create_server((os.environ['MASTER_ADDR'], port))\n"
      "print('good' if port not in others else 'taken')\n");
  const CommandResult r = expect_success(launch(argv("-- python3", folder / "serve.py")));
  EXPECT_CONTAINS(r.out, ":0: good");
}

TEST(Output, LinesOfManyWorkersAreNeverTorn) {
  const CommandResult r = expect_success(launch_shell(
      4,
      "for i in {1..1500}; do printf '%s ' begin $RANK $i {1..20}; printf 'end\\n'; [ $((i % "
      "3)) = 0 ] && echo err $RANK $i end >&2; done; true"));
  std::istringstream lines(r.out);
  std::map<std::string, int> counts;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find(": begin ");
    ASSERT_NE(start, std::string::npos) << line;
    const std::string rank = line.substr(start - 1, 1);
    EXPECT_EQ(line.substr(start + 8, 2), rank + " ") << line;
    EXPECT_TRUE(line.ends_with(" 19 20 end")) << line;
    EXPECT_EQ(std::stoi(line.substr(start + 10)), ++counts[rank]) << line;  // in order, none lost
  }
  EXPECT_EQ(counts.size(), 4u);
  for (const auto& [rank, count] : counts) EXPECT_EQ(count, 1500) << rank;
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 4 * 500 + 1);
}

TEST(Output, RedirectTeeAndFilter) {
  const TemporaryDirectory folder;
  const CommandResult r =
      expect_success(launch_shell(3, "echo out$RANK; echo err$RANK >&2",
                                  {"-r", "0:3,1:1", "--tee=1:2,2:1", "--log-dir", folder / "logs",
                                   "--rdzv-id", "j", "--local_ranks_filter", "0,1"}));
  EXPECT_EQ(r.out, "");  // 0 and 1 are redirected, 2 is filtered out
  EXPECT_CONTAINS(r.err, "err1");
  EXPECT_LACKS(r.err, "err0");
  EXPECT_LACKS(r.err, "err2");
  const auto log = [&](const std::string& name) {
    return test_support::read_text(folder / ("logs/j/0/" + name));
  };
  EXPECT_EQ(log("0/stdout"), "out0\n");
  EXPECT_EQ(log("0/stderr"), "err0\n");
  EXPECT_EQ(log("1/stdout"), "out1\n");
  EXPECT_EQ(log("1/stderr"), "err1\n");
  EXPECT_EQ(log("2/stdout"), "out2\n");
  EXPECT_FALSE(fs::exists(folder / "logs/j/0/2/stderr"));
}

// More lines than a pipe holds, so that some are written after head has left.
TEST(Output, AReaderThatWentAwayDoesNotStopTheWorkers) {
  const TemporaryDirectory folder;
  const CommandResult r = test_support::run_command(
      {"bash", "-c",
       "\"$0\" launch -- bash -c 'for i in {1..30000}; do echo line $i; done; echo done > '" +
           (folder / "done") + " | head -n 1; exit ${PIPESTATUS[0]}",
       test_support::engine_binary()});
  EXPECT_CONTAINS(r.out, "line 1\n");
  EXPECT_TRUE(fs::exists(folder / "done")) << r.err;
  EXPECT_VALUES(r.err, "output workers shown");
  EXPECT_CONTAINS(r.err, "engine: error: cannot write stdout: Broken pipe; all else is complete");
  EXPECT_EQ(r.exit_code, 74);
}

TEST(Output, ThatCannotBeWrittenEndsAJobThatHasSucceeded) {
  const CommandResult r = test_support::run_command(
      {"bash", "-c", "\"$0\" launch -- echo result > /dev/full", test_support::engine_binary()});
  EXPECT_CONTAINS(r.err, "cannot write stdout: No space left on device; all else is complete");
  EXPECT_EQ(r.exit_code, 74);
}

TEST(Failure, TheFirstIsNamedLastAndGivesTheCode) {
  const TemporaryDirectory folder;
  const CommandResult r = launch_shell(
      3, "if [ $RANK = 1 ]; then echo first >&2; echo cannot read x >&2; exit 41; fi; sleep 50",
      {"--log-dir", folder / "logs", "--rdzv-id", "j"});
  EXPECT_EQ(r.exit_code, 41) << r.err;
  const std::string last = last_line(r.err);
  for (const char* part :
       {"engine: error: rank 1 on ", "(pid ", "exit code 41", "cannot read x", "logs/j/0/1/stderr"})
    EXPECT_CONTAINS(last, part);
  const std::string json = test_support::read_text(folder / "logs/j/0/1/error.json");
  EXPECT_CONTAINS(json, "\"rank\":1");
  EXPECT_CONTAINS(json, "\"exit_code\":41");
  EXPECT_FALSE(fs::exists(folder / "logs/j/0/0/error.json"));  // it was ended, it did not fail
}

TEST(Failure, ASignalIsNamed) {
  const CommandResult r = launch_shell(2, "[ $RANK = 0 ] && kill -SEGV $$; sleep 50");
  EXPECT_EQ(r.exit_code, 139) << r.err;
  EXPECT_CONTAINS(last_line(r.err), "rank 0 on ");
  EXPECT_CONTAINS(last_line(r.err), "signal 11 (Segmentation fault)");
}

// Control groups of the test's own, in which rank 0 plays the kernel.
TEST(Failure, AKillForWantOfMemoryIsToldWithItsLimit) {
  const CommandResult r = test_support::run_command(
      {"unshare", "-m", "sh", "-c",
       "mount -t tmpfs none /sys/fs/cgroup || exit 99; "
       "export G=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup); mkdir -p $G; "
       "echo 62914560 > $G/memory.max; echo oom_kill 0 > $G/memory.events; "
       "exec \"$0\" launch --nproc-per-node 2 sh -c "
       "'[ $RANK = 0 ] && { echo oom_kill 1 > $G/memory.events; kill -9 $$; }; sleep 50'",
       test_support::engine_binary()});
  if (r.exit_code == 99 || r.err.starts_with("unshare: ")) GTEST_SKIP() << "may not mount";
  EXPECT_EQ(r.exit_code, 137) << r.err;
  for (const char* part :
       {"rank 0 on ", "signal 9 kernel memory", "/memory.max allows 60 MiB; no output on stderr"})
    EXPECT_VALUES(last_line(r.err), part);
}

TEST(Failure, ARankThatMissesAnotherIsNotTheCause) {
  const TemporaryDirectory folder;
  const std::string pid = folder / "pid";
  const CommandResult late =
      launch_shell(3, "[ $RANK = 0 ] && { echo $$ >" + pid + "; exit 69; }; [ $RANK = 2 ] && { " +
                          wait_for_end_of(pid) + "; kill -9 $$; }; sleep 50");
  EXPECT_EQ(late.exit_code, 137) << late.err;
  EXPECT_CONTAINS(last_line(late.err), "rank 2 on ");
  const auto start = std::chrono::steady_clock::now();
  const CommandResult alone = launch_shell(2, "[ $RANK = 0 ] && exit 69; sleep 50");
  EXPECT_EQ(alone.exit_code, 69) << alone.err;
  EXPECT_CONTAINS(last_line(alone.err), "rank 0 on ");
  EXPECT_FALSE(test_support::is_past(start, std::chrono::seconds(6)));
}

TEST(Failure, SurvivorsThatIgnoreTermAreKilled) {
  const std::string mark = test_support::unique_sleep();
  const auto start = std::chrono::steady_clock::now();
  const CommandResult r = launch_shell(
      2, "[ $RANK = 0 ] && { sleep 0.5; exit 3; }; trap '' TERM; while true; do sleep " + mark +
             "; done");
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  EXPECT_FALSE(test_support::is_past(start, std::chrono::seconds(9)));
  EXPECT_TRUE(test_support::eventually([&] { return test_support::processes_with(mark).empty(); }));
}

TEST(Restart, CountsAndStops) {
  const CommandResult mended = expect_success(launch_shell(
      2,
      "echo try $ENGINE_RESTART_COUNT; [ $ENGINE_RESTART_COUNT = 2 ] || { sleep 0.2; exit $RANK; }",
      {"--max-restarts", "3"}));
  EXPECT_CONTAINS(mended.out, ":0: try 2");
  EXPECT_LACKS(mended.out, "try 3");
  EXPECT_CONTAINS(mended.err, "restart 2 of 3 after: rank 1 on ");
  const CommandResult spent = launch_shell(1, "exit 9", {"--max-restarts", "2"});
  EXPECT_EQ(spent.exit_code, 9);
  EXPECT_CONTAINS(last_line(spent.err), "(after 2 restarts)");
  for (const char* code : {"2", "65", "77", "78"}) {
    const CommandResult hopeless =
        launch_shell(1, std::string("echo try; exit ") + code, {"--max-restarts", "2"});
    EXPECT_EQ(hopeless.exit_code, std::stoi(code));
    EXPECT_EQ(std::count(hopeless.out.begin(), hopeless.out.end(), '\n'), 1) << hopeless.out;
  }
}

TEST(Workers, AreStartedWithoutProc) {
  const CommandResult r = test_support::run_command(
      {"unshare", "-m", "sh", "-c",
       "mount -t tmpfs none /proc || exit 99; exec \"$0\" launch --nproc-per-node 2 train --model "
       "mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 --batch-size 12",
       test_support::engine_binary()});
  if (r.exit_code == 99 || r.err.starts_with("unshare: ")) GTEST_SKIP() << "may not mount";
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_CONTAINS(r.out, "2 ranks");
}

TEST(DryRun, PrintsTheTableAndStartsNothing) {
  const TemporaryDirectory folder;
  const CommandResult r =
      expect_success(launch(argv("--nnodes 2 --node-rank 1 --nproc-per-node 2 --master-addr "
                                 "n0 --master_port 4321 --dry-run -- touch",
                                 folder / "started"),
                            {{"OMP_NUM_THREADS", "5"}}));
  EXPECT_EQ(
      r.out.find(
          "rank,node,device,threads,address\n0,node0,cpu,5,n0:4321\n1,node0,cpu,5,n0:4321\n2,"),
      0u)
      << r.out;
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 5);
  EXPECT_FALSE(fs::exists(folder / "started"));
}

struct BadCase {
  std::vector<std::string> arguments;
  int code;
  std::vector<std::string> words;
};

TEST(Usage, MistakesAreNamed) {
  const BadCase cases[] = {
      {{}, 2, {"no command"}},
      {{"--nnodes", "1:4", "--node-rank", "0", "--master-addr", "h", "true"},
       2,
       {"--nnodes MIN:MAX", "train"}},
      {{"--respawn", "train"}, 2, {"--respawn", "--elastic"}},
      {{"--nnodes", "1:1", "--respawn", "train"},
       2,
       {"nodes fixed, 1: --nnodes MIN:MAX --elastic MIN:MAX"}},
      {{"--respawn-pause", "1", "train"}, 2, {"--respawn-pause", "--respawn:"}},
      {{"--respawn", "--respawn-pause", "soon", "train"}, 78, {"--respawn-pause 'soon'"}},
      {{"--nnodes", "1:4", "--node-rank=0", "--master-addr=h", "--max-restarts", "2", "train"},
       2,
       {"--max-restarts", "--respawn"}},
      {{"--nproc-per-node", "many", "true"}, 78, {"'many'", "gpu, cpu or auto"}},
      {{"--nproc-per-nod", "2", "true"}, 2, {"did you mean '--nproc-per-node'"}},
      {{"\u2014nproc_per_node=2", "true"}, 2, {"typographic"}},
      {{"\u2014", "nproc_per_node=2", "true"}, 2, {"typographic"}},
      {{"--rdzv-id", "\u201cjob\u201d", "true"}, 2, {"typographic"}},
      {{"--nnodes", "0", "true"}, 78, {"--nnodes '0'", "number of nodes", "is --node-rank"}},
      {{"--nnodes", "2", "--master-addr", "n0", "true"}, 2, {"--node-rank"}},
      {{"--nnodes", "2", "--node-rank", "2", "true"}, 78, {"--node-rank '2'", "from 0 to 1"}},
      {{"--nnodes", "2", "--node-rank", "0", "true"}, 2, {"--master-addr"}},
      {{"--standalone", "--nnodes", "2", "true"}, 2, {"--standalone"}},
      {{"--rdzv-backend", "c10d", "true"}, 78, {"'c10d'", "static or engine"}},
      {{"--hosts", "-oProxyCommand=x,n2", "true"}, 2, {"'-oProxyCommand=x' host"}},
      {{"--hosts", "n1:4", "true"}, 2, {"'n1:4'", "--nproc-per-node"}},
      {{"--hosts", "n1,n1", "--dry-run", "true"}, 2, {"'n1' is named twice"}},
      {{"--hosts", "localhost,n2", "true"}, 78, {"localhost", "n2 resolves to itself"}},
      {{"--hosts", "n1,n2", "--nnodes", "3", "true"}, 78, {"--nnodes 3", "2 hosts"}},
      {{"-m", "module"}, 2, {"python -m"}},
      {{"-r", "5", "true"}, 78, {"--redirects '5'"}},
      {{"--max-restarts", "-1", "true"}, 78, {"--max-restarts '-1'"}},
      {{"train", "--spawn", "2"}, 2, {"--spawn"}},
      {{"launch", "true"}, 2, {"launch itself"}},
      {{"no-such-program-at-all"}, 2, {"no program 'no-such-program-at-all'"}},
      {{"trian"}, 2, {"did you mean 'train'"}},
      {{"script.py"}, 2, {"write python script.py"}},
      {{"--master-addr", "192.0.2.1", "train"}, 78, {"192.0.2.1", "this host"}},
  };
  for (const BadCase& c : cases) {
    const CommandResult r = launch(c.arguments);
    EXPECT_EQ(r.exit_code, c.code) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    for (const std::string& word : c.words) EXPECT_VALUES(r.err, word);
  }
}

TEST(Hosts, InBracketsAreExpandedOrRefused) {
  const std::vector<std::string> program{"--dry-run", "--", "true"};
  const auto on = [&](const std::string& hosts) {
    std::vector<std::string> words{"--hosts", hosts};
    words.insert(words.end(), program.begin(), program.end());
    return launch(words);
  };
  const CommandResult both = on("me@n[01-02],login");
  EXPECT_EQ(both.exit_code, 0) << both.err;
  for (const char* row : {"\n0,me@n01,", "\n1,me@n02,", "\n2,login,"})
    EXPECT_CONTAINS(both.out, row);
  for (const char* hosts : {"n[1-3", "n]", "n[1,3", "n1-3],x"}) {
    const CommandResult r = on(hosts);
    EXPECT_EQ(r.exit_code, 78) << r.err;
    EXPECT_CONTAINS(r.err, "--hosts \"" + std::string(hosts) + "\": position ");
  }
  const TemporaryDirectory folder;
  test_support::write_text(folder / "hosts", "n[1-2] slots=1\n");
  const CommandResult file = launch({"--hostfile", folder / "hosts", "--dry-run", "--", "true"});
  EXPECT_EQ(file.exit_code, 0) << file.err;
  EXPECT_CONTAINS(file.out, "\n1,n2,");
}

}  // namespace
