// `engine top`: the status file, what it is made from, and how it looks.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backends/identity/host_identity.h"
#include "io/base/files/io_error.h"
#include "io/base/time/deadline.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tools/commands/top/top_view.h"
#include "tools/report/observers/run_status.h"
#include "tools/report/observers/status_observer.h"

namespace {

using test_support::TemporaryDirectory;
using tools::RunStatus;

RunStatus status_of_two() {
  RunStatus s;
  s.run = "20260102-030405-89abcdef";
  s.model = "mlp";
  s.dataset = "mnist";
  s.process.host = "n1";
  s.process.pid = 4711;
  s.process.space = "a host's";
  s.process.start_time = 1234;
  s.written_us = 1'700'000'000'000'000;
  s.progress.step = 1200;
  s.progress.steps = 9380;
  s.progress.epoch = 2;
  s.progress.epochs = 10;
  s.loss = 0.125;
  s.accuracy = 0.9612;
  s.rate = "5,120 images/s";
  s.seconds_left = 72;
  s.bytes_sent = 123456;
  s.evaluation = "after step 938: loss 0.0312, accuracy 99.10 % (991/1000)";
  s.newest_checkpoint = "step-00000938.ckpt";
  s.ranks.push_back(
      {.now = {.rank = 0,
               .activity = "step 1200 done",
               .progress = {12'300, "all_reduce sum of 7 f32", "nothing from rank 1"}},
       .host = "n1",
       .pid = 4711});
  s.ranks.push_back(
      {.now = {.rank = 1, .activity = "evaluation", .progress = {}}, .host = "n2", .pid = 4712});
  return s;
}

void write_status(const RunStatus& status, const std::string& folder) {
  std::ofstream(tools::run_status_path(folder)) << tools::run_status_json(status);
}

TEST(RunStatusFile, ReadsBackWhatWasWritten) {
  const TemporaryDirectory folder;
  RunStatus status = status_of_two();
  write_status(status, folder.path().string());
  EXPECT_EQ(run_status_json(tools::read_run_status(folder.path().string())),
            run_status_json(status));
  status.loss = status.seconds_left = std::nullopt;
  status.end = "failed";
  status.cause = "rank 1 died";
  status.ranks[1].now.connected = false;
  write_status(status, folder.path().string());
  EXPECT_EQ(run_status_json(tools::read_run_status(folder.path().string())),
            run_status_json(status));
}

TEST(RunStatusFile, DamageIsNamed) {
  const TemporaryDirectory folder;
  EXPECT_THROW((void)tools::read_run_status(folder.path().string()), io::MissingFileError);
  const std::string whole = run_status_json(status_of_two());
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    std::ofstream(tools::run_status_path(folder.path().string())) << whole.substr(0, length);
    EXPECT_THROW((void)tools::read_run_status(folder.path().string()), io::DataError) << length;
  }
}

TEST(RunStatusFile, ARunWhoseProcessIsGoneHasEnded) {
  const TemporaryDirectory folder;
  RunStatus status = status_of_two();
  status.process.pid = getpid();
  status.process.space = backends::process_space();
  status.process.start_time = static_cast<std::int64_t>(backends::process_start_time(getpid()));
  const auto read = [&] {
    write_status(status, folder.path().string());
    return tools::read_run_status(folder.path().string());
  };
  EXPECT_EQ(read().end, std::nullopt);
  ++status.process.start_time;  // its id is another process's by now
  RunStatus gone = read();
  EXPECT_EQ(gone.end, "ended without saying so");
  EXPECT_EQ(gone.cause, "process " + std::to_string(getpid()) + " on n1 is gone");
  const std::string text = tools::top_text(gone, 75, 100, 200);
  EXPECT_CONTAINS(text, "mlp on mnist, ended without saying so\n");
  EXPECT_CONTAINS(text, "\ncause: process " + std::to_string(getpid()) + " on n1 is gone\n");
  EXPECT_EQ(text.find(" left"), std::string::npos);
  EXPECT_EQ(text.find("no news"), std::string::npos);
  status.end = "completed";
  EXPECT_EQ(read().end, "completed");
  status.end.reset();
  status.process.space = "another host's";
  EXPECT_EQ(read().end, std::nullopt);
}

TEST(RunStatusFile, APipeInItsPlaceIsRefused) {
  const TemporaryDirectory folder;
  ASSERT_EQ(mkfifo((folder / "status.json").c_str(), 0600), 0);
  EXPECT_VALUES(test_support::error_of<io::DataError>(
                    [&] { (void)tools::read_run_status(folder.path().string()); }),
                "status.json regular");
}

TEST(TopText, ShowsProgressAndWhoWaits) {
  const std::string text = tools::top_text(status_of_two(), 0.5, 100, 200);
  EXPECT_EQ(
      text,
      "run 20260102-030405-89abcdef: mlp on mnist, training\n"
      "step 1,200 of 9,380, epoch 2 of 10 | loss 0.1250, accuracy 0.9612 | 5,120 images/s | "
      "1:12 left\n"
      "test after step 938: loss 0.0312, accuracy 99.10 % (991/1000)\n"
      "bytes sent by each rank: 123,456\n"
      "newest checkpoint: step-00000938.ckpt\n"
      "\n"
      " rank  host  pid      doing\n"
      "    0  n1    4711     step 1,200 done; waits 12.3 s in all_reduce sum of 7 f32: nothing "
      "from rank 1\n"
      "    1  n2    4712     evaluation\n");
}

TEST(TopText, CountsHaveCommasAndOtherNumbersDoNot) {
  RunStatus s = status_of_two();
  s.progress.epochs = 12'000;
  s.evaluation = "after step 414950: loss 0.0312";
  s.ranks[0].now.progress.call = "all_reduce sum of 29040 f32 (collective 1045 of communicator 1)";
  s.ranks[0].now.progress.links = "reconnects to 10.0.0.7:29500";
  s.ranks[1].now.activity = "resumes step-00004711.ckpt";
  const std::string text = tools::top_text(s, 0, 100, 200);
  EXPECT_CONTAINS(text, "epoch 2 of 12,000 |");
  EXPECT_CONTAINS(text, "test after step 414,950: loss 0.0312\n");
  EXPECT_CONTAINS(text,
                  "step 1,200 done; waits 12.3 s in all_reduce sum of 29,040 f32 (collective 1,045 "
                  "of communicator 1): reconnects to 10.0.0.7:29500\n");
  EXPECT_CONTAINS(text, "resumes step-00004711.ckpt\n");
}

TEST(TopText, SaysWhenNewsAreOld) {
  EXPECT_VALUES(tools::top_text(status_of_two(), 75, 100, 200), "no news 1:15: process 4711 n1");
  RunStatus ended = status_of_two();
  ended.end = "completed";
  const std::string text = tools::top_text(ended, 75, 100, 200);
  EXPECT_CONTAINS(text, "mlp on mnist, completed\n");
  EXPECT_EQ(text.find("no news"), std::string::npos);
  EXPECT_EQ(text.find("rank  host"), std::string::npos);  // they are gone
}

TEST(TopText, FitsATerminalWithThoseFirstThatWaitLongest) {
  RunStatus s = status_of_two();
  for (int rank = 2; rank < 100; ++rank) {
    const std::int64_t waiting_ms = std::int64_t{1000} * rank;
    s.ranks.push_back(
        {.now = {.rank = rank, .activity = "step 1", .progress = {waiting_ms, "", ""}},
         .host = "n3",
         .pid = rank});
  }
  s.ranks[50].now.connected = false;
  const std::string text = tools::top_text(s, 0, 3, 60);
  EXPECT_CONTAINS(text, "   50  n3    50       gone\n");
  EXPECT_LT(text.find("   50  n3"), text.find("   99  n3"));
  EXPECT_LT(text.find("   99  n3"), text.find("   98  n3"));
  EXPECT_CONTAINS(text, "97 more ranks, which wait less\n");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
}

TEST(TopText, SaysHowManyRanksItLeavesOut) {
  RunStatus s = status_of_two();
  EXPECT_CONTAINS(tools::top_text(s, 0, 1, 60), "\n1 more rank, which waits less\n");
  for (RunStatus::Rank& rank : s.ranks) rank.now.progress = {};
  EXPECT_CONTAINS(tools::top_text(s, 0, 1, 60), "\n1 more rank\n");
  EXPECT_CONTAINS(tools::top_text(s, 0, 0, 60), "\n2 more ranks\n");
}

TEST(TopText, AFailedRunHasACauseAndNoTimeLeft) {
  RunStatus s = status_of_two();
  s.end = "failed";
  s.cause = "rank 1 (host n2, pid 4712) died";
  const std::string text = tools::top_text(s, 75, 100, 200);
  EXPECT_CONTAINS(text, "\ncause: rank 1 (host n2, pid 4712) died\n");
  EXPECT_EQ(text.find(" left"), std::string::npos);
}

TEST(TopText, EscapesWhatOthersWrote) {
  RunStatus s = status_of_two();
  s.model = "a\x1b[31mb";
  s.ranks[1].now.activity = "x\ny";
  s.ranks[1].host = "n\x07";
  const std::string text = tools::top_text(s, 0, 100, 200);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
  EXPECT_EQ(text.find("x\ny"), std::string::npos);
}

class StatusObserverTest : public testing::Test {
 protected:
  // The status, once `is_wanted` holds for it.
  template <class Condition>
  RunStatus eventually(const Condition& is_wanted) {
    const auto until = base::deadline_in(test_support::deadline(std::chrono::seconds(20)));
    for (;;) {
      try {
        RunStatus status = tools::read_run_status(folder_.path().string());
        if (is_wanted(status) || base::has_passed(until)) return status;
      } catch (const io::MissingFileError&) {
        if (base::has_passed(until)) throw;
      }
      test_support::pause(std::chrono::milliseconds(20));
    }
  }
  std::unique_ptr<tools::StatusObserver> observer(backends::Group& group) {
    RunStatus begin;
    begin.run = "a run";
    begin.progress.steps = 10;
    begin.progress.epochs = 2;
    return tools::make_status_observer({.folder = folder_.path().string(),
                                        .begin = begin,
                                        .unit = {},
                                        .check = [this] { check_(); }},
                                       group);
  }

  TemporaryDirectory folder_;
  std::function<void()> check_ = [] {};
};

TEST_F(StatusObserverTest, WritesWhileNothingHappensAndAtTheEnd) {
  const auto groups = backends::make_inproc_groups(2, 20'000);
  const auto observing = observer(*groups[0]);
  EXPECT_EQ(eventually([](const RunStatus&) { return true; }).end, std::nullopt);
  groups[1]->set_activity("evaluation");
  const RunStatus status =
      eventually([](const RunStatus& s) { return s.ranks.at(1).now.activity == "evaluation"; });
  EXPECT_EQ(status.ranks.at(1).now.activity, "evaluation");
  observing->on_loss({}, 0.5);
  observing->on_step({.global_step = 7, .epoch = 1, .step_in_epoch = 2});
  const RunStatus later = eventually([](const RunStatus& s) { return s.progress.step == 7; });
  EXPECT_EQ(later.progress.step, 7);
  EXPECT_EQ(later.progress.epoch, 2);
  EXPECT_EQ(later.loss, 0.5);
  engine::TrainResult end;
  end.progress = {.global_step = 10, .epoch = 2};
  end.bytes_sent = 1234;
  observing->on_end(end);
  const RunStatus last = eventually([](const RunStatus& s) { return s.end == "completed"; });
  EXPECT_EQ(last.progress.epoch, 2);
  EXPECT_EQ(last.bytes_sent, 1234);
  EXPECT_EQ(last.cause, "");
}

TEST_F(StatusObserverTest, ARunThatDidNotEndHasFailed) {
  const auto groups = backends::make_inproc_groups(1, 20'000);
  observer(*groups[0]).reset();
  EXPECT_EQ(tools::read_run_status(folder_.path().string()).end, "failed");
}

TEST_F(StatusObserverTest, AFailureHasItsCause) {
  const auto groups = backends::make_inproc_groups(1, 20'000);
  const std::unique_ptr<tools::StatusObserver> observing = observer(*groups[0]);
  engine::StepReport report;
  report.step_seconds = 1;
  observing->on_report(report);
  observing->on_failure("the disk is full");
  const RunStatus status = eventually([](const RunStatus& s) { return s.end == "failed"; });
  EXPECT_EQ(status.cause, "the disk is full");
  EXPECT_FALSE(status.seconds_left.has_value());
}

TEST_F(StatusObserverTest, AFolderThatIsAnotherJobsIsLeftAlone) {
  const auto groups = backends::make_inproc_groups(1, 20'000);
  check_ = [] { throw io::CannotCreateError("taken"); };
  observer(*groups[0]).reset();
  EXPECT_FALSE(std::filesystem::exists(tools::run_status_path(folder_.path().string())));
}

}  // namespace
