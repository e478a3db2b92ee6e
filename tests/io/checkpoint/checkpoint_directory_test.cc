// A save folder over time: latest, pruning, fallback to older checkpoints, and processes killed in
// the middle of saving.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace {

using namespace checkpoint_fixture;
using Names = std::vector<std::string>;

class CheckpointDirectory : public testing::Test {
 protected:
  std::string directory() const { return folder_.path().string(); }
  std::string save(std::int64_t step, int keep_last = 3) {
    return io::save_to_directory(sample_checkpoint(step), directory(), keep_last);
  }
  void save_as(const std::string& run, std::int64_t step, int keep_last = 0) {
    io::Checkpoint checkpoint = sample_checkpoint(step);
    checkpoint.run_id = run;
    io::save_to_directory(checkpoint, directory(), keep_last);
  }
  void name_latest(std::int64_t step) {
    test_support::write_text(folder_ / "latest", io::checkpoint_file_name(step) + "\n");
  }
  // The step of the newest checkpoint that loads; -1 when there is none.
  std::int64_t newest(std::vector<std::string>* skipped = nullptr) const {
    const std::string path = io::find_newest_checkpoint(directory(), skipped);
    return path.empty() ? -1 : io::load_checkpoint(path).global_step;
  }
  void damage(std::int64_t step) {
    std::filesystem::resize_file(folder_ / io::checkpoint_file_name(step), 100);
  }

  test_support::TemporaryDirectory folder_;
};

TEST_F(CheckpointDirectory, NamesSortByStep) {
  EXPECT_EQ(io::checkpoint_file_name(600), "step-00000600.ckpt");
  EXPECT_EQ(io::checkpoint_file_name(1'234'567'890), "step-1234567890.ckpt");
}

TEST_F(CheckpointDirectory, SavesUpdatesLatestAndPrunes) {
  EXPECT_EQ(newest(), -1);
  for (const std::int64_t step : {100, 200, 300, 400, 500})
    EXPECT_EQ(save(step), folder_ / io::checkpoint_file_name(step));
  EXPECT_EQ(names_in(directory()),
            (Names{"latest", "step-00000300.ckpt", "step-00000400.ckpt", "step-00000500.ckpt"}));
  EXPECT_EQ(test_support::read_text(folder_ / "latest"), "step-00000500.ckpt\n");
  EXPECT_EQ(newest(), 500);
  save(500, 1);
  EXPECT_EQ(names_in(directory()), (Names{"latest", "step-00000500.ckpt"}));
}

TEST_F(CheckpointDirectory, KeepsAllWhenAsked) {
  for (std::int64_t step = 1; step <= 6; ++step) save(step, 0);
  EXPECT_EQ(names_in(directory()).size(), 7u);
}

TEST_F(CheckpointDirectory, PruningLeavesOtherFilesAlone) {
  for (const char* name :
       {"step-1.ckpt", "step-00000001.ckpt.bak", "final_model_rank_0.ckpt", "step-x.ckpt"})
    test_support::write_text(folder_ / name, "mine");
  save(5, 1);
  save(6, 1);
  EXPECT_EQ(names_in(directory()).size(), 4u + 2u);
}

TEST_F(CheckpointDirectory, AfterGoingBackTheNewBranchWins) {
  for (const std::int64_t step : {500, 600, 700}) save(step);
  save(200);  // resumed from an older checkpoint
  EXPECT_EQ(newest(), 200);
  EXPECT_EQ(names_in(directory()),
            (Names{"latest", "step-00000200.ckpt", "step-00000600.ckpt", "step-00000700.ckpt"}));
  save(300);
  EXPECT_EQ(names_in(directory()),
            (Names{"latest", "step-00000200.ckpt", "step-00000300.ckpt", "step-00000700.ckpt"}));
  damage(300);
  EXPECT_EQ(newest(), 200);
}

TEST_F(CheckpointDirectory, ARunPrunesOnlyItsOwnCheckpoints) {
  save_as("first", 900, 1);
  save(950, 1);  // of no run that is known
  damage(950);
  for (const std::int64_t step : {100, 200, 300}) save_as("second", step, 1);
  EXPECT_EQ(names_in(directory()),
            (Names{"latest", "step-00000300.ckpt", "step-00000900.ckpt", "step-00000950.ckpt"}));
  std::vector<std::string> skipped;
  EXPECT_EQ(io::find_newest_checkpoint(directory(), &skipped, "first"),
            folder_ / "step-00000900.ckpt");
  ASSERT_EQ(skipped.size(), 2u);
  EXPECT_EQ(skipped[0].find(folder_ / "step-00000950.ckpt"), 0u) << skipped[0];
  EXPECT_VALUES(skipped[1], (folder_ / "step-00000300.ckpt") + ": `latest` step-00000900.ckpt");
  EXPECT_EQ(newest(), 300);  // of the run that wrote what `latest` names
}

TEST_F(CheckpointDirectory, AnOldLatestDoesNotHideWhatTheRunSavedAfterIt) {
  for (const std::int64_t step : {100, 200, 300, 400}) save_as("this", step);
  save_as("other", 900);
  name_latest(200);
  for (const char* run : {"", "this"}) {
    std::vector<std::string> skipped;
    EXPECT_EQ(io::find_newest_checkpoint(directory(), &skipped, run),
              folder_ / "step-00000400.ckpt");
    EXPECT_LINES(skipped, (folder_ / "step-00000200.ckpt") + " `latest` step-00000400.ckpt newer");
  }
  damage(400);
  damage(200);  // nor does it matter what became of what it names
  std::vector<std::string> skipped;
  EXPECT_EQ(newest(&skipped), 300);
  ASSERT_EQ(skipped.size(), 2u);
  EXPECT_EQ(skipped[0].find(folder_ / "step-00000400.ckpt"), 0u) << skipped[0];
  std::filesystem::remove(folder_ / "step-00000200.ckpt");
  EXPECT_EQ(newest(), 300);
  damage(300);
  EXPECT_EQ(newest(), 100);
}

// The step stated inside decides, and a copy is the user's: it is not pruned either.
TEST_F(CheckpointDirectory, ARenamedCheckpointIsNotTheNewest) {
  for (const std::int64_t step : {100, 200}) save_as("this", step);
  std::filesystem::copy(folder_ / "step-00000100.ckpt", folder_ / "step-00000900.ckpt");
  EXPECT_EQ(io::newest_checkpoint_name(directory()), "step-00000200.ckpt");
  for (const char* run : {"", "this"}) {
    std::vector<std::string> skipped;
    EXPECT_EQ(io::find_newest_checkpoint(directory(), &skipped, run),
              folder_ / "step-00000200.ckpt");
    EXPECT_LINES(skipped, (folder_ / "step-00000900.ckpt") + ": 100 step-00000100.ckpt");
  }
  save_as("this", 300, 1);
  EXPECT_EQ(names_in(directory()), (Names{"latest", "step-00000300.ckpt", "step-00000900.ckpt"}));
  EXPECT_EQ(io::delete_older_checkpoints(directory(), "this"), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "step-00000900.ckpt"));
}

TEST_F(CheckpointDirectory, TheBestCheckpointIsNotPruned) {
  EXPECT_EQ(io::find_best_checkpoint(directory()), "");
  save(100, 2);
  io::save_to_directory(sample_checkpoint(200), directory(), 2, /*best=*/true);
  for (const std::int64_t step : {300, 400, 500}) save(step, 2);
  EXPECT_EQ(names_in(directory()), (Names{"best", "latest", "step-00000200.ckpt",
                                          "step-00000400.ckpt", "step-00000500.ckpt"}));
  EXPECT_EQ(io::find_best_checkpoint(directory()), folder_ / "step-00000200.ckpt");
  io::save_to_directory(sample_checkpoint(600), directory(), 2, /*best=*/true);
  EXPECT_EQ(names_in(directory()),
            (Names{"best", "latest", "step-00000500.ckpt", "step-00000600.ckpt"}));
  std::filesystem::remove(folder_ / "step-00000600.ckpt");
  EXPECT_EQ(io::find_best_checkpoint(directory()), "");
}

// What it names is not known then, and may be any of them.
TEST_F(CheckpointDirectory, WhereBestCannotBeReadNothingIsPruned) {
  io::save_to_directory(sample_checkpoint(100), directory(), 1, /*best=*/true);
  std::filesystem::remove(folder_ / "best");
  std::filesystem::create_symlink("best", folder_ / "best");  // to itself
  save(200, 1);
  EXPECT_EQ(names_in(directory()),
            (Names{"best", "latest", "step-00000100.ckpt", "step-00000200.ckpt"}));
  EXPECT_THROW(io::find_best_checkpoint(directory()), io::Error);
  std::filesystem::remove(folder_ / "best");
  io::name_best(directory(), 100);
  EXPECT_EQ(io::find_best_checkpoint(directory()), folder_ / "step-00000100.ckpt");
}

TEST_F(CheckpointDirectory, DamagedCheckpointsAreSkippedAndReported) {
  for (const std::int64_t step : {100, 200, 300}) save(step);
  damage(300);
  std::vector<std::string> skipped;
  EXPECT_EQ(newest(&skipped), 200);
  ASSERT_EQ(skipped.size(), 1u);
  EXPECT_EQ(skipped[0].find(folder_ / "step-00000300.ckpt"), 0u);
  damage(200);
  damage(100);
  EXPECT_THROW(newest(), io::DataError);
}

TEST_F(CheckpointDirectory, LatestIsOnlyAHint) {
  for (const std::int64_t step : {100, 200}) save(step);
  test_support::write_text(folder_ / "latest", "step-00000100.ckpt\n");
  EXPECT_EQ(newest(), 100);  // what it names counts, if it loads
  for (const char* text : {"", "\n", "../../etc/passwd", "step-00000900.ckpt",
                           "step-00000100.ckpt/../x", "step-100.ckpt", "\xff"}) {
    test_support::write_text(folder_ / "latest", text);
    EXPECT_EQ(newest(), 200) << text;
  }
  std::filesystem::remove(folder_ / "latest");
  EXPECT_EQ(newest(), 200);
  std::filesystem::create_directory(folder_ / "latest");
  EXPECT_EQ(newest(), 200);
}

// A run that keeps one checkpoint prunes what a reader has just listed.
TEST_F(CheckpointDirectory, OneIsAlwaysFoundInTheFolderOfARunThatPrunes) {
  save(1, 1);
  std::atomic<bool> finished{false};
  std::thread run([&] {
    for (std::int64_t step = 2; step < 300; ++step) save(step, 1);
    finished = true;
  });
  int missed = 0;
  while (!finished) {
    try {
      missed += io::find_newest_checkpoint(directory(), nullptr).empty();
    } catch (const io::DataError& error) {
      ++missed;
    }
  }
  run.join();
  EXPECT_EQ(missed, 0);
}

TEST_F(CheckpointDirectory, NoFolderMeansNoCheckpointButAFileIsAnError) {
  EXPECT_EQ(io::find_newest_checkpoint(folder_ / "none", nullptr), "");
  test_support::write_text(folder_ / "file", "");
  EXPECT_THROW(io::find_newest_checkpoint(folder_ / "file", nullptr), io::DataError);
}

TEST_F(CheckpointDirectory, EnsureMakesTheFolderAndLeavesNothingInIt) {
  io::ensure_writable_directory(folder_ / "a/b/c");
  io::ensure_writable_directory(folder_ / "a/b/c");
  EXPECT_TRUE(names_in(folder_ / "a/b/c").empty());
  test_support::write_text(folder_ / "file", "");
  EXPECT_THROW(io::ensure_writable_directory(folder_ / "file"), io::CannotCreateError);
  EXPECT_THROW(io::ensure_writable_directory(folder_ / "file/sub"), io::CannotCreateError);
  EXPECT_THROW(io::ensure_writable_directory("/proc/engine"), io::CannotCreateError);
}

TEST_F(CheckpointDirectory, FullFileSystemKeepsTheOldCheckpoint) {
  std::filesystem::create_directory(folder_ / "disk");
  if (mount("tmpfs", (folder_ / "disk").c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "may not mount a file system";
  const std::string disk = folder_ / "disk";
  io::save_to_directory(sample_checkpoint(1), disk, 3);
  io::Checkpoint large = sample_checkpoint(2);
  large.arrays[0].shape = {1024, 64};
  large.arrays[0].data.resize(std::size_t{1024} * 64 * 4);
  std::string message;
  try {
    io::save_to_directory(large, disk, 3);
  } catch (const io::CannotCreateError& error) {
    message = error.what();
  }
  const Names left = names_in(disk);
  const std::string found = io::find_newest_checkpoint(disk, nullptr);
  umount2(disk.c_str(), MNT_DETACH);
  EXPECT_CONTAINS(message, "No space left");
  EXPECT_EQ(left, (Names{"latest", "step-00000001.ckpt"}));
  EXPECT_EQ(found, disk + "/step-00000001.ckpt");
}

// A child saves one checkpoint after another and counts the completed ones; it is killed at a
// random moment of its first saves. What it had completed must be there and intact, and the next
// process that saves removes the temporary files. Every kill waits for the child's progress, not
// for a time, so that it hits a save on slow machines as well.
TEST_F(CheckpointDirectory, SurvivesKillsAtAnyMoment) {
  auto* done = static_cast<std::atomic<std::int64_t>*>(
      mmap(nullptr, sizeof(std::atomic<std::int64_t>), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(done, MAP_FAILED);
  std::mt19937 random(7);
  int kills = 0, kills_in_a_save = 0;
  for (; kills < 60 || (kills_in_a_save == 0 && kills < 2000); ++kills) {
    const std::int64_t before = done->load();
    const std::int64_t saves_first = random() % 2;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::int64_t step = before + 1;; ++step) {
        io::save_to_directory(sample_checkpoint(step), directory(), 2);
        done->store(step);
      }
    }
    EXPECT_TRUE(test_support::eventually([&] { return done->load() >= before + saves_first; }));
    usleep(random() % 5'000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const std::string& name : names_in(directory()))
      kills_in_a_save += name.find(".tmp-") != std::string::npos;
    std::vector<std::string> skipped;
    const std::int64_t found = std::max<std::int64_t>(newest(&skipped), 0);
    EXPECT_TRUE(skipped.empty()) << skipped.front();
    EXPECT_GE(found, done->load());
    EXPECT_LE(found, done->load() + 1);
    if (found > 0)
      expect_equal(io::load_checkpoint(folder_ / io::checkpoint_file_name(found)),
                   sample_checkpoint(found));
    done->store(found);
  }
  EXPECT_GT(done->load(), 10);
  EXPECT_GT(kills_in_a_save, 0) << "none of " << kills << " kills hit a save";
  save(done->load() + 1, 2);
  EXPECT_EQ(names_in(directory()).size(), 3u);  // latest and two checkpoints
  munmap(done, sizeof *done);
}

}  // namespace
