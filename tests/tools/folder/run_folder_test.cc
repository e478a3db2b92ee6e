// Who may use a run's folder, and what happens to the run that is in it.
#include "tools/folder/run_folder.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <thread>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/threads/stoppable_sleep.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/exit_codes.h"

namespace {

namespace fs = std::filesystem;
using tools::Resume;
using tools::RunFolder;

class Folder : public testing::Test {
 protected:
  std::string dir() const { return folder_ / "run"; }

  // A run with one checkpoint; its id.
  std::string finished_run(std::int64_t step = 100) {
    RunFolder folder({.folder = dir()});
    tools::RunRecord record{
        .id = "", .model = "mlp", .definition = "", .data = {}, .options = {}, .starts = {}};
    record.data.name = "mnist";
    folder.begin(record, {.time = "2026-01-02T03:04:05Z",
                          .program = "",
                          .command = "",
                          .hosts = {},
                          .step = 0,
                          .changed = {}});
    io::Checkpoint checkpoint;
    checkpoint.global_step = step;
    checkpoint.run_id = folder.id();
    io::save_to_directory(checkpoint, dir(), 3);
    return folder.id();
  }
  std::string refusal(const tools::RunFolderRequest& request) {
    try {
      const RunFolder folder(request);
      return "";
    } catch (const io::CannotCreateError& error) {
      return error.what();
    }
  }

  test_support::TemporaryDirectory folder_;
};

TEST_F(Folder, IsMadeAndGetsAnId) {
  RunFolder folder({.folder = folder_ / "a/b/"});
  EXPECT_EQ(folder.path(), folder_ / "a/b");
  EXPECT_TRUE(fs::is_directory(folder.path()));
  EXPECT_FALSE(folder.continued());
  EXPECT_EQ(folder.id().size(), std::string("20260102-030405-89abcdef").size()) << folder.id();
}

TEST_F(Folder, WithARunIsRefusedAndNothingChanges) {
  finished_run();
  const std::string text = refusal({.folder = dir()});
  EXPECT_VALUES(text, dir() + " mlp mnist, 2026-01-02T03:04:05Z, step-00000100.ckpt): --resume " +
                          dir() + " --overwrite --save-dir auto");
  EXPECT_TRUE(fs::exists(dir() + "/step-00000100.ckpt"));
  EXPECT_NE(
      refusal({.folder = dir(), .resume = Resume::parse(folder_ / "elsewhere/step-00000100.ckpt")})
          .find("holds another run"),
      std::string::npos);
}

TEST_F(Folder, IsTakenAgainToResume) {
  const std::string id = finished_run();
  for (const std::string& resume : {std::string("auto"), dir(), dir() + "/step-00000100.ckpt"}) {
    const RunFolder folder({.folder = dir(), .resume = Resume::parse(resume)});
    EXPECT_TRUE(folder.continued()) << resume;
    EXPECT_EQ(folder.id(), id) << resume;
  }
  // A launcher that starts a rank again goes on, although the command says nothing of it.
  const RunFolder folder({.folder = dir(), .overwrite = true, .restarted = true});
  EXPECT_EQ(folder.id(), id);
}

TEST_F(Folder, OverwriteMovesTheRunAside) {
  const std::string first = finished_run();
  for (const char* aside : {"run.old-1", "run.old-2"}) {
    {
      const RunFolder folder({.folder = dir(), .overwrite = true});
      EXPECT_NE(folder.id(), first);
      EXPECT_FALSE(fs::exists(dir() + "/step-00000100.ckpt"));
      EXPECT_NE(folder.notice().find(folder_ / aside), std::string::npos) << folder.notice();
    }
    EXPECT_TRUE(fs::exists((folder_ / aside) + "/step-00000100.ckpt"));
    EXPECT_TRUE(tools::has_run_record(folder_ / aside));
    finished_run();
  }
}

TEST_F(Folder, WithoutACheckpointIsFree) {
  { RunFolder({.folder = dir()}).begin({}, {}); }
  EXPECT_TRUE(tools::has_run_record(dir()));
  EXPECT_EQ(refusal({.folder = dir()}), "");
}

// It may be somebody else's.
TEST_F(Folder, WithARunJsonOfNoRunIsRefused) {
  for (const std::string text : {"{\"name\":\"of another program\"}", "no json"}) {
    fs::create_directories(dir());
    test_support::write_text(dir() + "/run.json", text);
    for (const bool overwrite : {false, true}) {
      const std::string said =
          refusal({.folder = dir(), .resume = Resume::parse("auto"), .overwrite = overwrite});
      EXPECT_TRUE(said.starts_with(dir() + "/run.json: ")) << said;
      EXPECT_VALUES(said, "not overwritten; --save-dir");
    }
    EXPECT_EQ(test_support::read_text(dir() + "/run.json"), text);
  }
}

TEST_F(Folder, WithFilesOfARunsNamesThatNoRunWroteIsRefused) {
  fs::create_directories(dir());
  for (const char* name :
       {"latest", "best", "run.lock", "status.json", "metrics.jsonl", "log.txt"}) {
    const std::string path = dir() + "/" + name;
    for (const char* text : {"mine\n", "{\"loss\": 1}\n", "x"}) {
      test_support::write_text(path, text);
      for (const bool overwrite : {false, true})
        EXPECT_VALUES(
            refusal({.folder = dir(), .resume = Resume::parse("auto"), .overwrite = overwrite}),
            path + ": --save-dir");
      EXPECT_EQ(test_support::read_text(path), text);
    }
    fs::remove(path);
  }
}

// The run would otherwise end at its first save, or lack its metrics.
TEST_F(Folder, WithAFolderInPlaceOfAFileIsRefused) {
  finished_run();
  for (const char* name : {"best", "status.json", "metrics.jsonl", "log.txt"}) {
    const std::string path = dir() + "/" + name;
    fs::create_directory(path);
    EXPECT_VALUES(refusal({.folder = dir(), .resume = Resume::parse("auto")}),
                  path + ": folder; --save-dir");
    fs::remove(path);
  }
}

// A run that was killed before it had saved, whose run.json is gone, goes on as a new one.
TEST_F(Folder, WithWhatARunLeftBehindIsFree) {
  const std::string id = finished_run();
  test_support::write_text(dir() + "/log.txt", "2026-01-02T03:04:05.678Z engine 0.1.0: mlp\n");
  test_support::write_text(dir() + "/metrics.jsonl", "{\"schema\":1,\"event\":\"start\"}\n");
  test_support::write_text(dir() + "/status.json", "{\"schema\":1}\n");
  test_support::write_text(dir() + "/run.lock", "elsewhere 1\n");
  fs::last_write_time(dir() + "/run.lock",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  fs::copy(dir() + "/latest", dir() + "/best");
  for (const char* name : {"/run.json", "/step-00000100.ckpt"}) fs::remove(dir() + name);
  EXPECT_NE(RunFolder({.folder = dir()}).id(), id);
  for (const char* name : {"latest", "best", "run.lock", "status.json", "metrics.jsonl", "log.txt"})
    test_support::write_text(dir() + "/" + name, "");  // cut off as it was made
  EXPECT_EQ(refusal({.folder = dir()}), "");
}

TEST_F(Folder, ContinuesWithADamagedRunJsonAndKeepsIt) {
  const std::string id = finished_run();
  for (const std::string number : {"1", "2"}) {
    test_support::write_text(dir() + "/run.json", "{" + number);
    RunFolder folder({.folder = dir(), .resume = Resume::parse("auto")});
    EXPECT_TRUE(folder.continued());
    EXPECT_EQ(folder.id(), id);
    EXPECT_TRUE(folder.notice().starts_with(dir() + "/run.json: ")) << folder.notice();
    EXPECT_TRUE(folder.notice().ends_with(" run.json.damaged-" + number)) << folder.notice();
    EXPECT_EQ(test_support::read_text(dir() + "/run.json"), "{" + number);
    folder.begin({}, {});
    EXPECT_EQ(test_support::read_text(dir() + "/run.json.damaged-" + number), "{" + number);
    EXPECT_EQ(tools::read_run_record(dir()).id, id);
  }
}

TEST_F(Folder, ContinuesWithAFolderInPlaceOfRunJson) {
  const std::string id = finished_run();
  fs::remove(dir() + "/run.json");
  fs::create_directory(dir() + "/run.json");
  RunFolder folder({.folder = dir(), .resume = Resume::parse("auto")});
  EXPECT_EQ(folder.id(), id);
  folder.begin({}, {});
  EXPECT_TRUE(fs::is_directory(dir() + "/run.json.damaged-1"));
  EXPECT_EQ(tools::read_run_record(dir()).id, id);
}

TEST_F(Folder, NamesOptionsOfAnotherVersion) {
  finished_run();
  std::string text = test_support::read_text(dir() + "/run.json");
  text.replace(text.find("\"options\":{") + 11, 0,
               "\"depth\":{\"value\":\"3\",\"source\":\"--depth\"}");
  test_support::write_text(dir() + "/run.json", text);
  const RunFolder folder({.folder = dir(), .resume = Resume::parse("auto")});
  EXPECT_VALUES(folder.notice(), dir() + "/run.json: options depth");
}

TEST_F(Folder, OnAFullDiskIsGoneAgain) {
  const std::string disk = folder_ / "disk";
  fs::create_directories(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "may not mount a file system";
  {
    std::ofstream filler(disk + "/filler");
    while (filler << std::string(4096, 'x') << std::flush) {
    }
  }
  const std::string said = refusal({.folder = disk + "/run"});
  const bool left = fs::exists(disk + "/run");
  umount2(disk.c_str(), MNT_DETACH);
  EXPECT_EQ(said, "cannot write " + disk + "/run/run.lock: No space left on device");
  EXPECT_FALSE(left);
}

TEST_F(Folder, ThatIsALinkToNowhereIsNamed) {
  fs::create_symlink("nowhere", dir());
  EXPECT_VALUES(refusal({.folder = dir()}), dir() + ": link nowhere,");
}

TEST_F(Folder, IsNotMovedWhereTheNewNameIsImpossible) {
  const std::string name(250, 'n'), long_dir = folder_ / name;
  finished_run();
  fs::rename(dir(), long_dir);
  EXPECT_EQ(refusal({.folder = long_dir, .overwrite = true}),
            "cannot move " + long_dir + " to " + long_dir + ".old-1: File name too long");
  EXPECT_TRUE(fs::exists(long_dir + "/step-00000100.ckpt"));
}

TEST_F(Folder, BehindALinkMovesAsideAndTheLinkStays) {
  const std::string first = finished_run(), link = folder_ / "link";
  fs::create_directory_symlink("run", link);
  const RunFolder second({.folder = link, .overwrite = true});
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(tools::read_run_record(dir() + ".old-1").id, first);
  EXPECT_TRUE(fs::is_directory(dir()) && fs::is_empty(dir() + "/run.lock") == false);
  EXPECT_TRUE(fs::equivalent(second.path(), dir()));
}

TEST_F(Folder, ThatIsTheWorkingFolderIsNotMoved) {
  finished_run();
  const fs::path before = fs::current_path();
  fs::current_path(dir());
  EXPECT_VALUES(refusal({.folder = ".", .overwrite = true}), "move . working folder");
  fs::current_path(before);
  EXPECT_TRUE(fs::exists(dir() + "/step-00000100.ckpt"));
}

TEST_F(Folder, InWhichNoRunBeganIsGoneAgain) {
  { const RunFolder folder({.folder = dir()}); }
  EXPECT_FALSE(fs::exists(dir()));
  {
    const RunFolder folder({.folder = dir()});
    test_support::write_text(dir() + "/note", "of the user");
  }
  EXPECT_TRUE(fs::exists(dir() + "/note"));
  fs::remove(dir() + "/note");
  { const RunFolder folder({.folder = dir()}); }
  EXPECT_TRUE(fs::is_directory(dir())) << "it was there before";
}

TEST_F(Folder, WithoutARecordIsRefusedAndCanGoOn) {
  fs::create_directories(dir());
  io::Checkpoint checkpoint;
  checkpoint.global_step = 7;
  checkpoint.run_id = "20260102-030405-89abcdef";
  checkpoint.config = "[run]\nmodel = \"mlp\"\ndataset = \"csv\"\n";
  io::save_to_directory(checkpoint, dir(), 3);
  EXPECT_NE(refusal({.folder = dir()}).find("a run without run.json"), std::string::npos);
  tools::ConfigValues values{{"resume", {dir(), "--resume"}}};
  EXPECT_EQ(tools::take_resumed_run(values), "");
  EXPECT_EQ(values.at("model").value, "mlp");
  EXPECT_EQ(values.at("dataset").value, "csv");
  const RunFolder folder({.folder = dir(), .resume = Resume::parse(values.at("resume").value)});
  EXPECT_TRUE(folder.continued());
  EXPECT_EQ(folder.id(), checkpoint.run_id);
}

// Both files of a run that hold its options. A library that a sent run brings along must not run.
TEST_F(Folder, ABackendInAStoredFileIsAName) {
  fs::create_directories(dir());
  for (const std::string path : {"./libengine_x.so", "/tmp/x.so", "checked:shm,./x.so"}) {
    io::Checkpoint checkpoint;
    checkpoint.global_step = 7;
    checkpoint.run_id = "20260102-030405-89abcdef";
    checkpoint.config = "[run]\nmodel = \"mlp\"\n[group]\nbackend = \"" + path + "\"\n";
    io::save_to_directory(checkpoint, dir(), 3);
    tools::RunRecord record;
    record.id = checkpoint.run_id;
    record.options["backend"] = {path, "--backend"};
    for (const bool with_record : {false, true}) {
      if (with_record) tools::write_run_record(record, dir());
      for (const std::string& resume : {dir(), dir() + "/step-00000007.ckpt"}) {
        tools::ConfigValues values{{"resume", {resume, "--resume"}}};
        try {
          tools::take_resumed_run(values);
          FAIL() << resume << " was taken with the backend " << path;
        } catch (const io::ConfigError& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find("its backend is " + path), std::string::npos) << text;
          EXPECT_NE(text.find("give --backend"), std::string::npos) << text;
        }
        values = {{"resume", {resume, "--resume"}}, {"backend", {path, "--backend"}}};
        tools::take_resumed_run(values);
        EXPECT_EQ(values.at("backend").value, path) << "somebody typed it";
      }
    }
    fs::remove(dir() + "/run.json");
  }
}

TEST_F(Folder, TheNameOfAStoredBackendIsKept) {
  fs::create_directories(dir());
  tools::RunRecord record;
  record.id = "20260102-030405-89abcdef";
  record.options["backend"] = {"mpi", "--backend"};
  tools::write_run_record(record, dir());
  tools::ConfigValues values{{"resume", {dir(), "--resume"}}};
  tools::take_resumed_run(values);
  EXPECT_EQ(values.at("backend").value, "mpi");
}

TEST_F(Folder, AutoNumbersFolders) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  const tools::RunFolderRequest request{
      .folder = "auto", .model = "nets/my net.toml", .dataset = "csv"};
  const RunFolder first(request), second(request);
  EXPECT_EQ(first.path(), "runs/my-net-csv-001");
  EXPECT_EQ(second.path(), "runs/my-net-csv-002");
  fs::current_path(before);
}

// A process that takes a folder when told to, and keeps it until the end of this. It is made before
// any RunFolder: the memory of a fork of several threads may be locked by a thread it does not
// have.
class AnotherJob {
 public:
  AnotherJob() {
    EXPECT_EQ(pipe(folder_), 0);
    EXPECT_EQ(pipe(taken_), 0);
    pid_ = fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) run();
    close(std::exchange(taken_[1], -1));  // so that read() ends with that process
  }
  ~AnotherJob() {
    end();
    for (const int descriptor : {folder_[0], folder_[1], taken_[0]}) close(descriptor);
  }
  void take(const std::string& folder) {
    EXPECT_EQ(write(folder_[1], folder.data(), folder.size()), std::ssize(folder));
    char byte = 0;
    EXPECT_EQ(read(taken_[0], &byte, 1), 1);
  }
  void end() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] void run() {
    try {
      std::array<char, PATH_MAX> name{};
      const ssize_t length = read(folder_[0], name.data(), name.size());
      const RunFolder own({.folder = {name.data(), static_cast<std::size_t>(length)}});
      if (write(taken_[1], "x", 1) == 1)
        for (;;) pause();  // until it is killed
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
    _exit(1);
  }

  pid_t pid_ = 0;
  int folder_[2], taken_[2];
};

TEST_F(Folder, OneJobAtATime) {
  AnotherJob job;
  job.take(dir());
  const std::string text = refusal({.folder = dir()});
  EXPECT_VALUES(text, "running in " + dir() + ": process " + std::to_string(job.pid()));
  job.end();
  EXPECT_EQ(refusal({.folder = dir()}), "");  // nobody holds it any more
}

TEST_F(Folder, ALockThatCannotBeOpenedIsToldWithItsOwner) {
  finished_run();
  fs::remove(dir() + "/run.lock");
  fs::create_directories(dir() + "/run.lock");  // root may open every file
  ASSERT_EQ(chmod((dir() + "/run.lock").c_str(), 0750), 0);
  EXPECT_EQ(refusal({.folder = dir(), .resume = Resume::parse("auto")}),
            "cannot open " + dir() + "/run.lock: Is a directory (owned by user " +
                std::to_string(geteuid()) + ", mode 0750)");
}

TEST_F(Folder, ALockThatIsDeletedIsMadeAgain) {
  RunFolder folder({.folder = dir()});
  fs::remove(dir() + "/run.lock");
  folder.check([](const std::string&) {});
  EXPECT_NE(refusal({.folder = dir()}).find("another job is running"), std::string::npos);
}

TEST_F(Folder, IsLostToAJobThatHasTakenIt) {
  AnotherJob job;
  RunFolder folder({.folder = dir()});
  fs::remove(dir() + "/run.lock");
  job.take(dir());
  EXPECT_VALUES(test_support::error_of<io::CannotCreateError>(
                    [&] { folder.check([](const std::string&) {}); }),
                dir() + ": " + std::to_string(job.pid()));
  EXPECT_THROW(folder.check_lock(), io::CannotCreateError);
}

TEST_F(Folder, ThatIsGoneIsMadeAgain) {
  RunFolder folder({.folder = dir()});
  folder.begin({}, {});
  fs::rename(dir(), folder_ / "elsewhere");
  std::string reported;
  folder.check([&](const std::string& text) { reported = text; });
  EXPECT_NE(reported.find("the folder " + dir() + " is gone"), std::string::npos) << reported;
  EXPECT_EQ(tools::read_run_record(dir()).id, folder.id());
  EXPECT_NE(refusal({.folder = dir()}).find("another job is running"), std::string::npos);
  EXPECT_EQ(refusal({.folder = folder_ / "elsewhere"}), "");  // nobody's now

  // A folder that has taken its place is not this run's.
  fs::rename(dir(), folder_ / "again");
  finished_run();
  EXPECT_THROW(folder.check([](const std::string&) {}), io::CannotCreateError);
}

TEST_F(Folder, ThatAnEmptyOneReplacedIsToldAndTaken) {
  RunFolder folder({.folder = dir()});
  folder.begin({}, {});
  fs::rename(dir(), folder_ / "elsewhere");
  fs::create_directories(dir());
  std::string reported;
  EXPECT_EQ(folder.check([&](const std::string& text) { reported = text; }), "");
  EXPECT_NE(reported.find("the folder " + dir() + " is another one than"), std::string::npos)
      << reported;
  EXPECT_EQ(tools::read_run_record(dir()).id, folder.id());
  EXPECT_NE(refusal({.folder = dir()}).find("another job is running"), std::string::npos);
  EXPECT_EQ(refusal({.folder = folder_ / "elsewhere"}), "");
}

TEST_F(Folder, WhoseFileSystemIsAwayIsNotWrittenTo) {
  RunFolder folder({.folder = dir()});
  folder.begin({}, {});
  if (mount("tmpfs", dir().c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "may not mount a file system";
  std::string reported;
  const auto notify = [&](const std::string& text) { reported = text; };
  const std::string away = folder.check(notify);
  const bool touched = !fs::is_empty(dir());
  umount2(dir().c_str(), MNT_DETACH);
  EXPECT_VALUES(away, dir() + " file system");
  EXPECT_FALSE(touched);
  EXPECT_EQ(folder.check(notify), "");  // it is back
  EXPECT_EQ(reported, "");
}

TEST_F(Folder, ThatAFileReplacedIsTold) {
  RunFolder folder({.folder = dir()});
  folder.begin({}, {});
  fs::rename(dir(), folder_ / "elsewhere");
  test_support::write_text(dir(), "hi");
  EXPECT_VALUES(folder.check([](const std::string&) {}), dir() + " file");
}

// A lock of another host, of this age by the clock of this one.
void write_lock(const std::string& path, std::chrono::seconds age) {
  test_support::write_text(path, "elsewhere 4711\n");
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

TEST_F(Folder, ASignOfAnotherHostKeepsItUntilItIsStale) {
  fs::create_directories(dir());
  write_lock(dir() + "/run.lock", std::chrono::seconds(2));
  const std::string text = refusal({.folder = dir()});
  EXPECT_VALUES(text, "running " + dir() + " process 4711 elsewhere 2 s 30 s --save-dir");
  EXPECT_EQ(refusal({.folder = dir(), .stale = std::chrono::seconds(1)}), "");
}

// What another host does with its lock while this one waits.
class Elsewhere {
 public:
  explicit Elsewhere(const std::function<void()>& act)
      : thread_([act](const std::stop_token& stop) {
          while (base::sleep_unless_stopped(stop, std::chrono::milliseconds(20))) act();
        }) {}

 private:
  std::jthread thread_;
};

// Clocks of hosts differ.
TEST_F(Folder, OfAnotherHostIsNotComparedWithTheClockOfThisOne) {
  fs::create_directories(dir());
  const std::string lock = dir() + "/run.lock";
  for (const std::string resume : {"none", "auto"}) {
    write_lock(lock, std::chrono::hours(-1));
    EXPECT_EQ(refusal({.folder = dir(),
                       .resume = Resume::parse(resume),
                       .stale = std::chrono::milliseconds(300)}),
              "")
        << "nobody touches it";
    for (const auto age : {std::chrono::hours(1), std::chrono::hours(-1)}) {
      write_lock(lock, age);
      const Elsewhere beats(
          [&] { fs::last_write_time(lock, fs::file_time_type::clock::now() - age); });
      const std::string text = refusal(
          {.folder = dir(), .resume = Resume::parse(resume), .stale = std::chrono::minutes(2)});
      EXPECT_VALUES(text, "running in " + dir() + " just");
    }
  }
}

TEST_F(Folder, OfAHostThatHasDiedIsWaitedForToGoOn) {
  using std::chrono::milliseconds;
  fs::create_directories(dir());
  for (tools::RunFolderRequest request :
       {tools::RunFolderRequest{.folder = dir(), .resume = Resume::parse("auto")},
        tools::RunFolderRequest{.folder = dir(), .restarted = true}}) {
    test_support::write_text(dir() + "/run.lock", "elsewhere 4711\n");
    request.stale = milliseconds(2000);  // long enough for a notice
    testing::internal::CaptureStderr();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(refusal(request), "");
    EXPECT_GE(std::chrono::steady_clock::now() - start, request.stale);
    EXPECT_NE(testing::internal::GetCapturedStderr().find(
                  "run.lock names process 4711 on elsewhere: waiting "),
              std::string::npos);
  }
}

TEST_F(Folder, OfAnotherHostThatLivesIsNotWaitedFor) {
  fs::create_directories(dir());
  const std::string lock = dir() + "/run.lock";
  test_support::write_text(lock, "elsewhere 4711\n");
  const Elsewhere beats([&] { fs::last_write_time(lock, fs::file_time_type::clock::now()); });
  EXPECT_VALUES(
      refusal({.folder = dir(), .resume = Resume::parse("auto"), .stale = std::chrono::minutes(2)}),
      "running " + dir() + " process 4711 elsewhere just --save-dir");
}

TEST_F(Folder, ASignalEndsTheWaitForAnotherHost) {
  fs::create_directories(dir());
  test_support::write_text(dir() + "/run.lock", "elsewhere 4711\n");
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    dup2(said[1], STDERR_FILENO);
    close(said[1]);
    tools::install_stop_signals();
    try {
      const RunFolder own({.folder = dir(), .resume = Resume::parse("auto")});
      _exit(0);
    } catch (const std::exception& error) {
      _exit(tools::exit_code_of(error));
    }
  }
  close(said[1]);
  std::string text;
  for (char byte = 0; text.find("waiting") == std::string::npos && read(said[0], &byte, 1) == 1;)
    text += byte;
  kill(pid, SIGINT);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  close(said[0]);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT) << status << text;
}

TEST_F(Folder, IsTakenAsSoonAsAnotherHostLetsItGo) {
  fs::create_directories(dir());
  const std::string lock = dir() + "/run.lock";
  test_support::write_text(lock, "elsewhere 4711\n");
  std::atomic<bool> let_go{false};
  const Elsewhere ends([&] {
    if (!let_go.exchange(true)) fs::resize_file(lock, 0);
  });
  EXPECT_EQ(
      refusal({.folder = dir(), .resume = Resume::parse(dir()), .stale = std::chrono::minutes(2)}),
      "");
}

TEST_F(Folder, StandsForACheckpoint) {
  finished_run(100);
  EXPECT_EQ(tools::find_checkpoint(dir(), tools::CheckpointChoice::kBest),
            dir() + "/step-00000100.ckpt");
  io::Checkpoint best;
  best.global_step = 50;
  io::save_to_directory(best, dir(), 3, /*best=*/true);
  io::Checkpoint newest;
  newest.global_step = 200;
  io::save_to_directory(newest, dir(), 3);
  EXPECT_EQ(tools::find_checkpoint(dir(), tools::CheckpointChoice::kBest),
            dir() + "/step-00000050.ckpt");
  EXPECT_EQ(tools::find_checkpoint(dir(), tools::CheckpointChoice::kNewest),
            dir() + "/step-00000200.ckpt");
  EXPECT_EQ(tools::find_checkpoint("some.ckpt", tools::CheckpointChoice::kBest), "some.ckpt");
  fs::create_directories(folder_ / "empty");
  EXPECT_THROW(tools::find_checkpoint(folder_ / "empty", tools::CheckpointChoice::kBest),
               io::MissingFileError);
}

TEST_F(Folder, ACheckpointThatIsPrunedBeforeItIsReadIsChosenAgain) {
  finished_run(100);
  std::vector<std::string> chosen;
  const auto prune_until = [&](int last) {
    return [&, last](const std::string& file) {
      chosen.push_back(fs::path(file).filename());
      if (static_cast<int>(chosen.size()) < last) {
        fs::remove(file);
        io::Checkpoint newer;
        newer.global_step = 100 * (static_cast<std::int64_t>(chosen.size()) + 1);
        io::save_to_directory(newer, dir(), 3);
      }
      return io::load_checkpoint(file).global_step;
    };
  };
  EXPECT_EQ(tools::read_checkpoint(dir(), tools::CheckpointChoice::kNewest, prune_until(3)), 300);
  EXPECT_EQ(chosen, (std::vector<std::string>{"step-00000100.ckpt", "step-00000200.ckpt",
                                              "step-00000300.ckpt"}));
  chosen.clear();
  EXPECT_THROW(tools::read_checkpoint(dir(), tools::CheckpointChoice::kNewest, prune_until(1000)),
               io::MissingFileError);
  EXPECT_LT(chosen.size(), 20u);
  chosen.clear();
  EXPECT_THROW(
      tools::read_checkpoint("none.ckpt", tools::CheckpointChoice::kNewest, prune_until(0)),
      io::MissingFileError);
  EXPECT_EQ(chosen.size(), 1u);
}

}  // namespace
