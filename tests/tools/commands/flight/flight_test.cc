// engine inspect --flight: merging of made-up records, damaged files, and the records of a real run
// with a killed rank.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/flight_recorder.h"
#include "io/base/files/io_error.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tools/commands/flight/flight_report.h"
#include "tools/launch/group/flight_folder.h"

namespace {

using namespace tools;
using backends::ControlWord;
using backends::FlightRecorder;
using backends::Operation;
using backends::ReduceOp;
using base::DType;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;

CommandResult inspect(const std::string& folder, const std::vector<std::string>& more = {}) {
  return call("inspect --flight", folder, more);
}

// A rank's recorder after `done` calls of all_reduce of 10 f32 on communicator 0.
class Rank {
 public:
  Rank(int rank, int world, std::uint32_t done) : rank_(rank), world_(world) {
    for (; sequence_ < done;) recorder_.end(begin(10), false);
  }
  FlightRecorder::Ticket begin(std::size_t count, int communicator = 0) {
    return recorder_.begin(communicator,
                           backends::reduction_word(Operation::kAllReduce, ++sequence_, count,
                                                    DType::kF32, ReduceOp::kSum));
  }
  FlightRecorder& recorder() { return recorder_; }
  void write(const TemporaryDirectory& folder,
             const std::vector<std::string>& membership = {}) const {
    test_support::write_text(
        folder / ("flight_rank_" + std::to_string(rank_) + ".json"),
        recorder_.to_json({rank_, world_, 100 + rank_, "n" + std::to_string(rank_), "gloo",
                           "it \"broke\"\n\x1b[31m", "step 7", membership}));
  }

 private:
  const int rank_, world_;
  std::uint32_t sequence_ = 0;
  FlightRecorder recorder_;
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_VALUES(text, part);
}

TEST(Flight, ARankThatNeverCameAndOneWithoutRecord) {
  const TemporaryDirectory folder;
  Rank zero(0, 4, 5), one(1, 4, 4), three(3, 4, 5);
  zero.begin(7);
  three.recorder().end(three.begin(7), true);
  for (const Rank* rank : {&zero, &one, &three}) rank->write(folder);
  const CommandResult text = expect_success(inspect(folder.path().string()));
  expect_parts(text.out,
               {"3 4 ranks missing: rank 2", "rank 0 (n0, pid 100, backend gloo)", "doing: step 7",
                "communicator 0: finished by all: 4, all_reduce sum of 10 f32",
                "rank 0 in collective 6, all_reduce sum of 7 f32, since",
                "rank 1 is BEHIND: finished collective 4", "rank 3 failed in collective 6",
                "=> No record of rank 2", "=> Communicator 0: rank 1 never"});
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);  // a terminal is not to obey a file
  EXPECT_LACKS(text.out, "disagree");
  const CommandResult json = inspect(folder.path().string(), {"--format", "json"});
  expect_parts(json.out, {"\"missing\":[2]", "\"behind\":[1]", "\"mismatch\":null"});
}

TEST(Flight, AMismatchShowsBothCalls) {
  const TemporaryDirectory folder;
  Rank zero(0, 2, 11), one(1, 2, 11);
  zero.begin(7);
  one.begin(8);
  zero.write(folder);
  one.write(folder);
  const CommandResult result = expect_success(inspect(folder.path().string()));
  expect_parts(result.out, {"disagree 12 communicator 0: rank 0 all_reduce sum of 7 f32, rank 1 "
                            "all_reduce sum of 8 f32"});
}

TEST(Flight, WhatOneRanksRingHasLostIsNotCompared) {
  const TemporaryDirectory folder;
  Rank zero(0, 2, FlightRecorder::kCapacity + 100), one(1, 2, 50);
  zero.write(folder);
  one.write(folder);
  const CommandResult result = expect_success(inspect(folder.path().string()));
  expect_parts(result.out, {"rank 1 is BEHIND", "collective 4196"});
  EXPECT_LACKS(result.out, "disagree");
}

TEST(Flight, CallsThatNoMemberMadeAreToldApart) {
  const TemporaryDirectory folder;
  Rank zero(0, 2, 3), one(1, 2, 3);
  zero.begin(5, 1);
  zero.write(folder);
  one.write(folder);
  const CommandResult result = inspect(folder.path().string());
  expect_parts(result.out, {"communicator 1: no finished by all", "rank 1: no call recorded"});
}

TEST(Flight, AnElasticJobsRecordsTellHowItsRanksChanged) {
  const TemporaryDirectory folder;
  const std::vector<std::string> changes{
      "2026-01-02T03:04:05Z generation 1: 3 ranks (the same)",
      "2026-01-02T03:05:05Z generation 2: 2 ranks (process 7 on \"n\x1b[31m\" left)"};
  Rank(0, 2, 3).write(folder, changes);
  Rank(1, 2, 3).write(folder);  // it has come since
  const std::vector<FlightRecord> read = read_flight_records(folder.path().string());
  ASSERT_EQ(read.size(), 2u);
  ASSERT_EQ(read[0].membership.size(), 2u);
  EXPECT_EQ(read[0].membership[0], changes[0]);
  EXPECT_TRUE(read[1].membership.empty());
  const CommandResult text = expect_success(inspect(folder.path().string()));
  expect_parts(text.out,
               {"\n  " + changes[0] + "\n  2026-01-02T03:05:05Z generation 2: 2 ranks ("});
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  const CommandResult json = inspect(folder.path().string(), {"--format", "json"});
  expect_parts(json.out, {"\"membership\":[\"" + changes[0] + "\","});
}

void expect_refused(const TemporaryDirectory& folder, const std::vector<std::string>& words) {
  const CommandResult result = inspect(folder.path().string());
  EXPECT_EQ(result.exit_code, 65) << result.out << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  expect_parts(result.err, words);
}

TEST(Flight, DamagedFilesAreOneClearLine) {
  const TemporaryDirectory folder;
  expect_refused(folder, {"no flight_rank_*.json"});
  Rank zero(0, 2, 3);
  zero.write(folder);
  const std::string path = folder / "flight_rank_0.json", sound = test_support::read_text(path);
  const auto damaged = [&](const std::string& from, const std::string& to,
                           const std::vector<std::string>& words) {
    std::string text = sound;
    ASSERT_CONTAINS(text, from) << from;
    test_support::write_text(path, text.replace(text.find(from), from.size(), to));
    expect_refused(folder, words);
  };
  damaged("\"rank\":0", "\"rank\":1", {"flight_rank_0.json", "\"rank\" is 1"});
  damaged("\"world_size\":2", "\"world_size\":0", {"world_size", "is 0"});
  damaged("\"world_size\":2", "\"world_size\":99999999999999999999", {"world_size"});
  damaged("\"schema\":1", "\"schema\":2", {"schema"});
  damaged("\"sequence\":1,", "\"sequence\":-1,", {"collective 0", "sequence"});
  damaged("\"sequence\":1,", "\"sequence\":4000000000,", {"comes after collective 4000000000"});
  damaged("\"state\":\"done\"", "\"state\":\"odd\"", {"collective 0", "state"});
  damaged("\"collectives\":[", "\"other\":[", {"lacks \"collectives\""});
  damaged("gloo", "\xff\xfe", {"invalid JSON"});
  for (std::size_t length = 0; length + 2 < sound.size(); length += 7) {
    test_support::write_text(path, sound.substr(0, length));
    EXPECT_THROW(read_flight_records(folder.path().string()), io::DataError) << length;
  }
  test_support::write_text(path, std::string(std::size_t{17} << 20, '['));
  expect_refused(folder, {"longer than"});
  test_support::write_text(path, std::string(1 << 20, '['));
  expect_refused(folder, {"64 levels"});
  zero.write(folder, {"generation 1"});
  const std::string elastic = test_support::read_text(path);
  for (const char* bad : {"[7]", "\"generation 1\"", "{}"}) {
    std::string text = elastic;
    const std::string list = "[\"generation 1\"]";
    ASSERT_CONTAINS(text, list);
    test_support::write_text(path, text.replace(text.find(list), list.size(), bad));
    expect_refused(folder, {"membership"});
  }
  test_support::write_text(path, sound);
  Rank(1, 3, 1).write(folder);
  expect_refused(folder, {"of a world of 3", "of 2"});
  EXPECT_EQ(inspect(folder / "nowhere").exit_code, 65);
}

TEST(FlightFolder, IsOfThisUserAndOneForEachJob) {
  namespace fs = std::filesystem;
  const TemporaryDirectory folder;
  const std::string base = folder / "engine-flight";
  const std::string one = tools::own_flight_folder(base, "n1-1");
  EXPECT_EQ(one, base + "/n1-1");
  EXPECT_EQ(tools::own_flight_folder(base, "n1-1"), one);
  EXPECT_NE(tools::own_flight_folder(base, "n1-2"), one);
  for (const std::string& made : {base, one})
    EXPECT_EQ(fs::status(made).permissions(), fs::perms::owner_all) << made;
}

TEST(FlightFolder, WhatOthersCouldHavePutThereIsRefused) {
  namespace fs = std::filesystem;
  const TemporaryDirectory folder;
  const auto refusal = [](const std::string& base) -> std::string {
    try {
      return "made " + tools::own_flight_folder(base, "job");
    } catch (const io::CannotCreateError& error) {
      return error.what();
    }
  };
  const std::string link = folder / "link", open = folder / "open", file = folder / "file";
  fs::create_directory(folder / "elsewhere");
  fs::create_directory_symlink(folder / "elsewhere", link);
  EXPECT_EQ(refusal(link), link + " is not a folder");
  test_support::write_text(file, "x");
  EXPECT_EQ(refusal(file), file + " is not a folder");
  fs::create_directory(open);
  fs::permissions(open, fs::perms::all);
  EXPECT_VALUES(refusal(open), open + " written by other users");
  if (geteuid() != 0) return;  // only root can give a folder away
  const std::string others = folder / "others";
  fs::create_directory(others);
  ASSERT_EQ(chown(others.c_str(), 65534, 65534), 0);
  EXPECT_VALUES(refusal(others), others + " user 65534, 0");
}

TEST(Flight, NamesTheKilledRankOfARealRun) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "m.jsonl";
  const std::vector<std::string> arguments =
      argv(test_support::engine_binary(),
           "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
           "--batch-size 12 --epochs 1000000 --eval-every 0 --log-every 5 --threads 1 --spawn 3 "
           "--metrics",
           metrics, "--flight-dir", folder.path().string());
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(nowhere, fd);
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const bool running = test_support::eventually([&] {
    return test_support::workers_of(parent).size() == 3 && std::filesystem::exists(metrics) &&
           test_support::read_text(metrics).find("\"event\":\"step\"") != std::string::npos;
  });
  const std::vector<pid_t> workers = test_support::workers_of(parent);
  if (running) kill(workers[1], SIGKILL);
  int status = 0;
  const bool ended =
      test_support::eventually([&] { return waitpid(parent, &status, WNOHANG) == parent; });
  if (!ended) {
    kill(parent, SIGKILL);
    waitpid(parent, &status, 0);
  }
  ASSERT_TRUE(running && ended);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
  const CommandResult result = expect_success(inspect(folder.path().string()));
  expect_parts(result.out, {"2 3 ranks rank 1", "=> No record of rank 1", "rank 1 (host ",
                            "pid " + std::to_string(workers[1]) + ") died", "all_reduce sum of"});
}

}  // namespace
