// `engine relay` and `--relay` as programs: start, end and refusals.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>

#include "backends/store/tcp_socket.h"
#include "tests/support/free_port.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using test_support::engine;

const std::map<std::string, std::string> kSecret{
    {"ENGINE_SECRET", "00112233445566778899aabbccddeeff"}};

std::string relay_at(int port) { return "127.0.0.1:" + std::to_string(port); }

TEST(RelayProgram, ServesUntilItIsAskedToStop) {
  const std::string at = relay_at(test_support::free_port());
  test_support::Running relay({test_support::engine_binary(), "relay", "--listen", at}, kSecret);
  ASSERT_TRUE(relay.writes_out("relay at " + at));
  ASSERT_TRUE(relay.writes_out("ENGINE_SECRET"));
  program::expect_error(engine({"relay", "--listen", at}, kSecret), 69, "listen " + at + " taken");
  kill(relay.pid(), SIGTERM);
  EXPECT_EQ(relay.wait(), 0) << relay.err();
  EXPECT_TRUE(relay.out().ends_with("relay stopped\n")) << relay.out();
  EXPECT_EQ(relay.err(), "");
}

TEST(RelayProgram, NeedsASecretThatOthersKnow) {
  const test_support::TemporaryDirectory home;
  const auto result = engine({"relay", "--listen", relay_at(test_support::free_port())},
                             {{"HOME", home.path().string()},
                              {"XDG_CONFIG_HOME", ""},
                              {"ENGINE_SECRET", ""},
                              {"ENGINE_SECRET_FILE", ""}});
  EXPECT_EQ(result.exit_code, 77) << result.err;
  program::expect_words(result.err, {"engine: error: no secret found: "});
}

TEST(RelayProgram, RefusesWhatCannotUseIt) {
  for (const std::string place : {"rank0", "rank0:70000", "n1:0", "n1:"})
    program::expect_error(engine(program::quick_train({"--relay", place})), 78,
                          "--relay '" + place + "' HOST:PORT rank0:PORT, 1 65535");
  program::expect_error(
      engine(program::quick_train({"--relay", "rank0:29600", "--spawn", "2", "--elastic", "1:2"})),
      78, "--relay rank0:29600 no --elastic,");
}

// Ranks of one host need no relay, and a backend that cannot use one is refused.
TEST(RelayProgram, RankZeroRelaysForATraining) {
  const int port = test_support::free_port();
  for (const char* backend : {"socket", "zmq"}) {
    const auto result =
        engine(program::quick_train({"--spawn", "2", "--backend", backend, "--steps", "2",
                                     "--relay", "rank0:" + std::to_string(port)}));
    if (std::string(backend) == "socket") {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      program::expect_words(result.out + result.err, {"1 direct 0 " + relay_at(port)});
    } else if (result.err.find("not in this build") == std::string::npos) {
      EXPECT_EQ(result.exit_code, 78) << result.err;
      program::expect_words(result.err, {"backend zmq --relay"});
    }
  }
}

// Every rank names it, at once.
TEST(RelayProgram, ARelayThatIsMissingOrOfAnotherJobEndsAllRanks) {
  const std::string at = relay_at(test_support::free_port());
  const std::vector<std::string> train = program::quick_train(
      {"--spawn", "2", "--backend", "socket", "--relay", at, "--rdzv-timeout", "1"});
  const auto missing = engine(train);
  EXPECT_EQ(missing.exit_code, 69) << missing.err;
  program::expect_words(missing.err, {at + " refused `engine relay`"});
  test_support::Running relay({test_support::engine_binary(), "relay", "--listen", at}, kSecret);
  ASSERT_TRUE(relay.writes_out("relay at "));
  const auto other = engine(train);  // --spawn makes a secret of its own
  EXPECT_EQ(other.exit_code, 77) << other.err;
  program::expect_words(other.err, {at + " relay secret"});
}

TEST(RelayProgram, ATakenPortOnTheHostOfRankZeroIsTheReasonOfAllRanks) {
  const backends::Socket taken = backends::listen_on({"127.0.0.1", 0});  // accepts in the kernel
  const std::string port = std::to_string(backends::local_endpoint(taken.fd()).port),
                    meeting = std::to_string(test_support::free_port());
  const auto rank = [&](const std::string& number) {
    std::vector<std::string> words = program::quick_train(
        {"--rank", number, "--world-size", "2", "--init-method", "tcp://127.0.0.1:" + meeting,
         "--backend", "socket", "--relay", "rank0:" + port});
    words.insert(words.begin(), test_support::engine_binary());
    return std::make_unique<test_support::Running>(words, kSecret);
  };
  const auto zero = rank("0"), one = rank("1");
  const std::string reason = "cannot listen on " + relay_at(std::stoi(port));
  EXPECT_EQ(zero->wait(), 69) << zero->err();
  program::expect_words(zero->err(), {reason});
  EXPECT_EQ(one->wait(), 69) << one->err();
  program::expect_words(one->err(), {"rank 0 (host ", "ended before the others", reason});
  EXPECT_EQ(one->err().find("firewall"), std::string::npos) << one->err();
}

TEST(RelayProgram, SaysWhereItHasNoEffect) {
  for (const char* backend : {"shm", "inproc"}) {
    const auto result =
        engine(program::quick_train({"--spawn", "2", "--backend", backend, "--steps", "1",
                                     "--relay", relay_at(test_support::free_port())}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    program::expect_words(result.err, {std::string("engine: --relay has no effect: backend ") +
                                       backend + " makes no connections between hosts\n"});
  }
}

}  // namespace
