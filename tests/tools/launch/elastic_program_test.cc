// Elastic jobs of the real program: ranks that are asked to leave, and what is refused.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <system_error>

#include "backends/membership/acceptor_file.h"
#include "backends/store/tcp_socket.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/tools/launch/launch_runner.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine_binary;
using test_support::eventually;
using test_support::expect_success;
using test_support::free_port;
using test_support::run_command;
using test_support::Running;
using test_support::TemporaryDirectory;
using test_support::workers_of;

using Words = std::vector<std::string>;

constexpr int kLeft = 80;

// Returns the file in which the host of this rank has its votes; "" if it has none open.
std::string acceptor_file_of(pid_t rank) {
  for (const auto& file :
       std::filesystem::directory_iterator("/proc/" + std::to_string(rank) + "/fd")) {
    std::error_code closed;
    const std::filesystem::path path = std::filesystem::read_symlink(file.path(), closed);
    if (path.filename().string().starts_with("elastic-")) return path.string();
  }
  return "";
}

class ElasticProgram : public testing::Test {
 protected:
  // The last rank that dies, or is left alone, leaves its host's acceptor file to the next job.
  ~ElasticProgram() override {
    try {
      backends::AcceptorFile("the end of a test").remove_if_last();  // removes those as well
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  // Trains until it is told to stop.
  Words train(const Words& more) const {
    return test_support::overridden(argv("train --model mlp --dataset synthetic --synthetic-shape "
                                         "6x6x1 --batch-size 12 --threads 1 "
                                         "--steps 100000000 --eval-every 0 --log-every 10 "
                                         "--save-every 100000000 --rdzv-timeout 60 "
                                         "--save-dir",
                                         folder_ / "run"),
                                    more);
  }
  static std::unique_ptr<Running> start(const Words& words) {
    return std::make_unique<Running>(argv(engine_binary(), words));
  }
  const TemporaryDirectory folder_;
};

TEST_F(ElasticProgram, ARankThatIsAskedToLeaveDoesSoAndTheOthersGoOn) {
  const Words words = train(
      {"--elastic", "2:3", "--init-method", "tcp://127.0.0.1:" + std::to_string(free_port())});
  const auto first = start(words);
  ASSERT_TRUE(first->writes_err("waiting"));
  const auto second = start(words), third = start(words);
  ASSERT_TRUE(first->writes_out("Step ["));
  const pid_t leaver = second->pid();
  ASSERT_EQ(kill(leaver, SIGUSR2), 0);
  EXPECT_EQ(second->wait(), kLeft);
  EXPECT_VALUES(second->err(), "left step as asked;");
  const std::string left = "membership: 2 ranks (process " + std::to_string(leaver) + " on ";
  ASSERT_TRUE(first->writes_out(left)) << first->out() << first->err();
  // One rank alone is fewer than MIN: all save and stop.
  ASSERT_EQ(kill(first->pid(), SIGUSR2), 0);
  EXPECT_EQ(first->wait(), 128 + SIGUSR2);
  EXPECT_EQ(third->wait(), 128 + SIGUSR2);
  EXPECT_CONTAINS(first->err(), "to continue: engine train --resume");
}

TEST_F(ElasticProgram, TheFirstRankLeavesAndAnotherSaves) {
  const Words words = train(
      {"--elastic", "1:2", "--init-method", "tcp://127.0.0.1:" + std::to_string(free_port())});
  const auto first = start(words);
  ASSERT_TRUE(first->writes_err("waiting"));
  const auto second = start(words);
  const auto trains = [](const Running& r) { return r.out().find("Step [") != std::string::npos; };
  ASSERT_TRUE(eventually([&] { return trains(*first) || trains(*second); }));
  const bool first_leads = trains(*first);
  const Running& leader = first_leads ? *first : *second;
  Running& leaver = first_leads ? *first : *second;
  Running& other = first_leads ? *second : *first;
  ASSERT_EQ(kill(leader.pid(), SIGUSR2), 0);
  EXPECT_EQ(leaver.wait(), kLeft);
  ASSERT_TRUE(eventually([&] { return trains(other); })) << other.out() << other.err();
  ASSERT_EQ(kill(other.pid(), SIGTERM), 0);
  EXPECT_EQ(other.wait(), 128 + SIGTERM);
  EXPECT_CONTAINS(other.err(), "to continue: engine train --resume");
}

TEST_F(ElasticProgram, ALauncherGoesOnWithoutAWorkerThatHasLeft) {
  const auto launcher = start(argv("launch --nproc-per-node 3", train({"--elastic", "1:3"})));
  ASSERT_TRUE(launcher->writes_out("Step ["));
  const std::vector<pid_t> workers = workers_of(launcher->pid());
  ASSERT_EQ(workers.size(), 3u);
  // What `ps`, `top` and `pkill` know it by.
  for (const pid_t pid : workers)
    EXPECT_EQ(test_support::read_text("/proc/" + std::to_string(pid) + "/comm"), "engine\n");
  ASSERT_EQ(kill(workers[2], SIGUSR2), 0);
  const std::string left = "process " + std::to_string(workers[2]) + " on ";
  ASSERT_TRUE(launcher->writes_out(left));
  ASSERT_TRUE(eventually([&] { return test_support::command_line_of(workers[2]).empty(); }));
  ASSERT_EQ(kill(launcher->pid(), SIGTERM), 0);
  EXPECT_EQ(launcher->wait(), 128 + SIGTERM);
}

// With --spawn and on one node nobody can come in their place.
TEST_F(ElasticProgram, WhereTooFewAreLeftTheJobEndsWith69AndSaysSoLast) {
  for (const bool launched : {false, true}) {
    const Words training = train({"--elastic", "2:3"});
    const auto job =
        start(launched ? argv("launch --nproc-per-node 3", training) : argv(training, "--spawn 3"));
    ASSERT_TRUE(job->writes_out("Step ["));
    const std::vector<pid_t> workers = workers_of(job->pid());
    ASSERT_EQ(workers.size(), 3u);
    ASSERT_EQ(kill(workers[0], SIGKILL), 0);
    ASSERT_TRUE(job->writes_err("the others continue"));
    ASSERT_EQ(kill(workers[2], SIGKILL), 0);
    EXPECT_EQ(job->wait(), 69) << job->err();
    const std::string err = job->err();
    const auto last = err.rfind("engine: error: ");
    ASSERT_NE(last, std::string::npos) << err;
    EXPECT_VALUES(err.substr(last), "2 3 ranks");
    EXPECT_EQ(err.find('\n', last), err.size() - 1) << err;
    EXPECT_LACKS(err, "signal 15");
  }
}

// A stopped rank has the file of its host open when the others leave, and is then killed.
TEST_F(ElasticProgram, NoAcceptorFileStaysOfAJobThatEndsWithAStoppedRank) {
  for (const bool launched : {false, true}) {
    const Words training = train({"--elastic", "1:3", "--heartbeat", "0.5", "--save-dir",
                                  folder_ / (launched ? "launched" : "spawned")});
    const auto job =
        start(launched ? argv("launch --nproc-per-node 3", training) : argv(training, "--spawn 3"));
    ASSERT_TRUE(job->writes_out("Step [")) << job->err();
    const std::vector<pid_t> workers = workers_of(job->pid());
    ASSERT_EQ(workers.size(), 3u);
    const std::string file = acceptor_file_of(workers[0]);
    ASSERT_TRUE(std::filesystem::exists(file)) << file;
    ASSERT_EQ(kill(workers[2], SIGSTOP), 0);
    ASSERT_TRUE(job->writes_out("membership: 2 ranks (")) << job->err();
    ASSERT_EQ(kill(job->pid(), SIGTERM), 0);
    EXPECT_EQ(job->wait(), 128 + SIGTERM) << job->err();
    EXPECT_VALUES(job->err(), "1 3 workers killed");
    EXPECT_FALSE(std::filesystem::exists(file)) << file;
  }
}

TEST_F(ElasticProgram, TheFlightRecordOfARankThatIsLeftAloneTellsHowTheOthersWent) {
  // Time to meet, and for the last one to wait.
  const std::string patience = std::to_string(test_support::deadline_ms(3000) / 1000.0);
  const std::string flight = folder_ / "flight";
  const Words words =
      train(argv("--elastic 2:3 --init-method", "tcp://127.0.0.1:" + std::to_string(free_port()),
                 "--rdzv-timeout", patience, "--flight-dir", flight, "--log-ranks all"));
  const auto left = start(words), second = start(words), third = start(words);
  const auto says = [&](const std::string& line) { return left->writes_out(line); };
  ASSERT_TRUE(says("Step [")) << left->out() << left->err();
  const auto gone = [](const Running& r) { return "process " + std::to_string(r.pid()) + " on "; };
  const std::string first_gone = gone(*third);
  ASSERT_EQ(kill(third->pid(), SIGKILL), 0);
  ASSERT_TRUE(says("membership: 2 ranks (" + first_gone)) << left->out() << left->err();
  ASSERT_EQ(kill(second->pid(), SIGKILL), 0);
  EXPECT_EQ(left->wait(), 69);
  EXPECT_CONTAINS(left->err(), flight);
  const CommandResult r = expect_success(call("inspect --flight", flight));
  EXPECT_CONTAINS(r.out, "generation 1: 3 ranks");
  EXPECT_CONTAINS(r.out, "generation 2: 2 ranks (" + first_gone);
}

// An epoch of 3,000,000 samples has 1,000,000 steps, which take many times longer than this test
// needs from the first step to the signal: the checkpoint is of the first epoch.
TEST_F(ElasticProgram, TheOthersDivideThePartOfARankThatIsLost) {
  const Words words =
      train(argv("--elastic 1:3 --spawn 3 --shard file --synthetic-size 3000000 --synthetic-shape "
                 "2x2x1 --batch-size 3"));
  const auto job = start(words);
  ASSERT_TRUE(job->writes_out("Step ["));
  const std::vector<pid_t> workers = workers_of(job->pid());
  ASSERT_EQ(workers.size(), 3u);
  ASSERT_EQ(kill(workers[1], SIGKILL), 0);
  const std::string left = "membership: 2 ranks (";
  ASSERT_TRUE(eventually([&] {
    const std::string out = job->out();
    const auto at = out.find(left);
    return at != std::string::npos && out.find("Step [", at) != std::string::npos;
  })) << job->out()
      << job->err();
  ASSERT_EQ(kill(job->pid(), SIGTERM), 0);
  EXPECT_EQ(job->wait(), 128 + SIGTERM) << job->err();
  const CommandResult checkpoint = expect_success(call("inspect", folder_ / "run"));
  EXPECT_CONTAINS(checkpoint.out, "trainer.file_parts@0");
}

// A node is lost, launcher and all, and started again: whichever it was.
TEST_F(ElasticProgram, ANodeThatIsLostAndStartedAgainIsTakenIn) {
  const std::string secret = folder_ / "secret", whole = folder_ / "whole";
  test_support::write_text(secret, std::string(64, '5'));
  chmod(secret.c_str(), 0600);
  const auto training = [&](const std::string& run) {
    return train(argv("--steps 1000 --batch-size 24 --reduction-order canonical --save-dir", run));
  };
  expect_success(test_support::engine(training(whole)));
  for (const int lost : {1, 0}) {
    const std::string run = folder_ / ("lost-" + std::to_string(lost)),
                      port = std::to_string(free_port());
    const auto node = [&](int rank) {
      Words words = argv(engine_binary(), "launch --nnodes 1:2 --node-rank", std::to_string(rank),
                         "--nproc-per-node 1 --master-addr 127.0.0.1 --master-port", port,
                         "--rdzv-id", "job-" + port);
      for (const std::string& word : training(run)) words.push_back(word);
      return std::make_unique<Running>(
          words, std::map<std::string, std::string>{{"ENGINE_SECRET_FILE", secret}});
    };
    auto stays = node(1 - lost), goes = node(lost);
    ASSERT_TRUE(eventually([&] {
      return (stays->out() + goes->out()).find("Step [") != std::string::npos;
    })) << stays->err()
        << goes->err();
    goes.reset();  // its guard ends the rank
    ASSERT_TRUE(eventually([&] {
      return stays->out().find("membership: 1 rank (") != std::string::npos;
    })) << stays->out()
        << stays->err();
    // Which is on the same host, so that it serves the job's address from now on.
    ASSERT_TRUE(eventually([&] {
      std::string reason;
      return backends::connect_to({"127.0.0.1", std::stoi(port)},
                                  base::deadline_in(std::chrono::seconds(1)), reason)
                 .fd() >= 0;
    })) << stays->err();
    // So that the job does not end before the node is back.
    const std::vector<pid_t> rank = workers_of(stays->pid());
    ASSERT_EQ(rank.size(), 1u);
    ASSERT_EQ(kill(rank.front(), SIGSTOP), 0);
    const auto again = node(lost);
    EXPECT_TRUE(again->writes_err("last known ranks do not answer")) << again->err();
    ASSERT_EQ(kill(rank.front(), SIGCONT), 0);
    EXPECT_EQ(again->wait(), 0) << again->err();
    EXPECT_EQ(stays->wait(), 0) << stays->err();
    EXPECT_CONTAINS(stays->out(), "membership: 2 ranks (");
    expect_success(call("verify --only all", whole, run));
  }
}

// They would wait for the whole time of the rendezvous.
TEST_F(ElasticProgram, TooFewRanksThatNobodyCanJoinAreRefused) {
  const Words training = train({"--elastic", "3:4"});
  for (const bool launched : {false, true}) {
    const CommandResult r =
        run_command(argv(engine_binary(), launched ? argv("launch --nproc-per-node 2", training)
                                                   : argv(training, "--spawn 2")));
    EXPECT_EQ(r.exit_code, 78) << r.err;
    EXPECT_VALUES(r.err, std::string("--elastic 3:4 3 ") +
                             (launched ? "--nproc-per-node" : "--spawn") + " 2");
  }
}

TEST_F(ElasticProgram, NumbersOfRanksAreRefused) {
  Words words =
      argv(engine_binary(), "train --model mlp --dataset synthetic --elastic 1:2 --world-size 2");
  for (const char* option : {"--world-size", "--rank"}) {
    const CommandResult r = run_command(words);
    EXPECT_EQ(r.exit_code, 78);
    EXPECT_CONTAINS(r.err, option);
    EXPECT_CONTAINS(r.err, "--elastic");
    words.insert(words.end(), {"--rank", "1"});
  }
}

}  // namespace
