// Saves in the background beside a state that goes on changing, and what a long run's checkpoints
// hold of its history.
#include "engine/train/saving/checkpoint_manager.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/transport/single/single_communicator.h"
#include "engine/averaging/policies/averaging_policies.h"
#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/engine/optim/typed_optimizers.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

namespace fs = std::filesystem;

// A convolutional model with momentum whose parameters and momenta can be set.
class CheckpointManagerTest : public testing::Test {
 protected:
  engine::CheckpointManager checkpoints(bool background) {
    engine::CheckpointManagerOptions options;
    options.directory = folder_ / "run";
    options.keep_last = keep_last_;
    options.background = background;
    options.exit_code_of = [](const std::exception&) { return 1; };
    options.retry_pause = std::chrono::milliseconds(1);
    options.before_write = [this] {
      if (away_for_ > 0) return --away_for_, std::string("the folder is away");
      return std::string();
    };
    options.notice = [this](const std::string& text) {
      notices_.push_back(text);
      if (on_notice_) on_notice_();
    };
    return {*control_, options};
  }

  // Every number of the state: another one for every step and every element.
  void set_state(std::int64_t step) {
    state_.progress.global_step = step;
    float value = static_cast<float>(step);
    for (float& v : parts_.model.parameters.values.span<float>()) v = value += 0.25f;
    for (const engine::Optimizer::State& s : optimizer_->state())
      for (float& v : s.buffer->span<float>()) v = value += 0.25f;
    parts_.model.counters.span<std::int64_t>()[0] = step;
  }

  // What a checkpoint holds of a state that is now set to the one of `step`.
  std::vector<io::NamedArray> arrays_at(std::int64_t step) {
    set_state(step);
    engine::StateCopy copy;
    engine::capture(*control_, state_, copy);
    return copy.take().arrays;
  }

  void expect_saved(const std::string& path, std::int64_t step) {
    const io::Checkpoint loaded = io::load_checkpoint(path);
    const std::vector<io::NamedArray> expected = arrays_at(step);
    EXPECT_EQ(loaded.global_step, step);
    ASSERT_EQ(loaded.arrays.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(loaded.arrays[i].name, expected[i].name);
      EXPECT_EQ(loaded.arrays[i].data, expected[i].data) << expected[i].name;
    }
  }

  const test_support::TemporaryDirectory folder_;
  int keep_last_ = 2;
  std::vector<std::string> notices_;
  int away_for_ = 0;  // attempts to write that find that the folder must not be written to
  std::function<void()> on_notice_;
  std::unique_ptr<backends::Communicator> control_ = backends::make_single_communicator();
  tiny_training::Parts parts_{{.shape = {8, 8, 1}, .model = "convnet"}};
  std::unique_ptr<engine::Optimizer> optimizer_ =
      engine::make_sgd({.momentum = 0.9}, parts_.model.parameters.values);
  std::unique_ptr<engine::AveragingPolicy> policy_ = engine::make_no_averaging(1);
  engine::StateHome home_;
  engine::TrainState state_{.model = parts_.model,
                            .optimizer = *optimizer_,
                            .policy = *policy_,
                            .home = home_,
                            .progress = {},
                            .device = {}};
};

TEST_F(CheckpointManagerTest, ABackgroundSaveHoldsTheStateOfItsStep) {
  engine::CheckpointManager checkpoints = this->checkpoints(true);
  std::vector<std::string> paths;
  for (std::int64_t step = 1; step <= 4; ++step) {
    set_state(step);
    checkpoints.save(state_);
    set_state(1000);  // the training goes on at once
    checkpoints.finish();
    const auto saved = checkpoints.take_saved();
    ASSERT_TRUE(saved);
    EXPECT_EQ(saved->progress.global_step, step);
    expect_saved(saved->path, step);
    paths.push_back(saved->path);
  }
  EXPECT_FALSE(fs::exists(paths[1]));
  EXPECT_TRUE(fs::exists(paths[2]));
}

// Both kinds of saves write the same bytes but for the time of the save.
TEST_F(CheckpointManagerTest, ResumesWhatItSaved) {
  for (const bool background : {false, true}) {
    engine::CheckpointManager saving = checkpoints(background);
    set_state(7);
    saving.save(state_);
    saving.finish();
    set_state(1000);
    EXPECT_EQ(checkpoints(false).resume(folder_ / "run", state_),
              folder_ / "run/step-00000007.ckpt");
    engine::StateCopy copy;
    engine::capture(*control_, state_, copy);
    const std::vector<io::NamedArray> resumed = copy.take().arrays, expected = arrays_at(7);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(resumed[i].data, expected[i].data) << expected[i].name;
  }
}

// Earlier arrays are in the state when damage of the last one shows; the checkpoint before is then
// taken as a whole.
TEST_F(CheckpointManagerTest, AfterADamagedCheckpointTheOneBeforeIsLoadedCompletely) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  for (const std::int64_t step : {7, 8}) {
    set_state(step);
    checkpoints.save(state_);
  }
  const std::string newest = folder_ / "run/step-00000008.ckpt";
  {
    constexpr int kTrailerBytes = 24;
    std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-kTrailerBytes - 1, std::ios::end);
    const auto last = static_cast<char>(file.get());
    file.seekp(-kTrailerBytes - 1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  set_state(1000);
  EXPECT_THROW(checkpoints.resume(newest, state_), io::DataError);
  EXPECT_EQ(checkpoints.resume(folder_ / "run", state_), folder_ / "run/step-00000007.ckpt");
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_CONTAINS(notices_[0], "is damaged");
  EXPECT_EQ(state_.progress.global_step, 7);
  engine::StateCopy copy;
  engine::capture(*control_, state_, copy);
  const std::vector<io::NamedArray> resumed = copy.take().arrays, expected = arrays_at(7);
  ASSERT_EQ(resumed.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(resumed[i].data, expected[i].data) << expected[i].name;
}

// What it states of the epoch is how many ranks divide it, not how many have saved.
TEST_F(CheckpointManagerTest, ARankThatSavesAloneStatesTheRanksThatDivideTheEpoch) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  set_state(1);
  state_.ranks.of_files = 3;
  checkpoints.save_alone(state_);
  const io::Checkpoint saved = io::load_checkpoint(checkpoints.take_saved().value().path);
  EXPECT_EQ(engine::find_counter(saved.counters, "trainer.file_parts", 0), 3);
}

// The loss of a rank may be noticed after the save of a step.
TEST_F(CheckpointManagerTest, ARankThatSavesAloneKeepsWhatAllHaveSaved) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  set_state(1);
  checkpoints.save(state_);
  const std::string path = checkpoints.take_saved().value().path;
  state_.model.parameters.values.span<float>()[0] += 1;
  checkpoints.save_alone(state_);
  EXPECT_FALSE(checkpoints.take_saved());
  const std::vector<io::NamedArray> saved = io::load_checkpoint(path).arrays,
                                    expected = arrays_at(1);
  ASSERT_EQ(saved.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(saved[i].data, expected[i].data) << expected[i].name;
}

// Earlier checkpoints have the models of ranks that train independently.
TEST_F(CheckpointManagerTest, ARankThatSavesAloneMayKeepAllEarlierOnes) {
  keep_last_ = 1;
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  set_state(1);
  checkpoints.save(state_);
  const std::string first = checkpoints.take_saved().value().path;
  set_state(2);
  EXPECT_TRUE(checkpoints.save_alone(state_, {.keep_all = true}));
  EXPECT_TRUE(fs::exists(first));
  set_state(3);
  EXPECT_TRUE(checkpoints.save_alone(state_));
  EXPECT_FALSE(fs::exists(first));
}

TEST_F(CheckpointManagerTest, AFailedBackgroundSaveIsToldAtTheNextSaveOrAtTheEnd) {
  for (const bool next_save : {true, false}) {
    engine::CheckpointManager checkpoints = this->checkpoints(true);
    set_state(1);
    fs::rename(folder_ / "run", folder_ / "away");
    std::ofstream(folder_ / "run") << "a file where the folder was";
    checkpoints.save(state_);
    if (next_save)
      EXPECT_THROW(checkpoints.save(state_), io::CannotCreateError);
    else
      EXPECT_THROW(checkpoints.finish(), io::CannotCreateError);
    EXPECT_FALSE(checkpoints.take_saved());
    fs::remove(folder_ / "run");
    fs::rename(folder_ / "away", folder_ / "run");
    checkpoints.save(state_);  // told once; the next one may work
    checkpoints.finish();
    EXPECT_TRUE(checkpoints.take_saved());
  }
}

// No thread can be started whose stack has more bytes than an address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    pthread_attr_setstacksize(&huge, std::size_t{1} << 60);
    pthread_setattr_default_np(&huge);
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST_F(CheckpointManagerTest, WithoutAThreadABackgroundSaveIsWrittenAtOnce) {
  engine::CheckpointManager checkpoints = this->checkpoints(true);
  set_state(1);
  {
    const NoThreads none;
    checkpoints.save(state_);
    away_for_ = 100;
    set_state(2);
    checkpoints.save(state_);
  }
  const auto saved = checkpoints.take_saved();
  ASSERT_TRUE(saved);
  expect_saved(saved->path, 1);
  ASSERT_FALSE(notices_.empty());
  EXPECT_VALUES(notices_[0], "checkpoint step 1 thread: ");
  EXPECT_THROW(checkpoints.finish(), io::CannotCreateError);  // as a save in the background
}

TEST_F(CheckpointManagerTest, AFailedSaveIsTriedAgain) {
  for (const bool background : {false, true}) {
    notices_.clear();
    on_notice_ = nullptr;
    engine::CheckpointManager checkpoints = this->checkpoints(background);
    set_state(1);
    fs::rename(folder_ / "run", folder_ / "away");
    std::ofstream(folder_ / "run") << "a file where the folder was";
    on_notice_ = [&] {
      if (notices_.size() != 2) return;
      fs::remove(folder_ / "run");
      fs::rename(folder_ / "away", folder_ / "run");
    };
    checkpoints.save(state_);
    checkpoints.finish();
    const auto saved = checkpoints.take_saved();
    ASSERT_TRUE(saved);
    expect_saved(saved->path, 1);
    ASSERT_EQ(notices_.size(), 2u);
    EXPECT_VALUES(notices_[0], "step 1 not saved");
    EXPECT_TRUE(notices_[0].ends_with("; trying again")) << notices_[0];
  }
}

TEST_F(CheckpointManagerTest, ASaveThatFailsForGoodNamesTheNewestCheckpoint) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  set_state(1);
  checkpoints.save(state_);
  fs::remove(folder_ / "run/latest");
  fs::create_directory(folder_ / "run/latest");
  set_state(2);
  const std::string error_text =
      test_support::error_of<io::Error>([&] { checkpoints.save(state_); });
  EXPECT_CONTAINS(error_text, "; the newest checkpoint is ");
}

TEST_F(CheckpointManagerTest, TheLastCheckpointIsNamedWhereItsFolderIsAway) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  set_state(1);
  checkpoints.save(state_);
  fs::rename(folder_ / "run", folder_ / "away");
  set_state(2);
  const std::string error_text =
      test_support::error_of<io::Error>([&] { checkpoints.save(state_); });
  EXPECT_VALUES(error_text,
                "last checkpoint " + (folder_ / "run/step-00000001.ckpt") + ", not there");
}

// Not a byte goes to a folder that must not be written to; when it is back, the state does.
TEST_F(CheckpointManagerTest, AFolderThatIsAwayIsWaitedFor) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  set_state(1);
  away_for_ = 2;
  checkpoints.save(state_);
  expect_saved(checkpoints.take_saved().value().path, 1);
  const std::string notice = "checkpoint step 1 the folder is away";
  EXPECT_LINES(notices_, notice, notice);
  set_state(2);
  away_for_ = 100;
  const std::string error_text =
      test_support::error_of<io::CannotCreateError>([&] { checkpoints.save(state_); });
  EXPECT_EQ(error_text,
            "the folder is away; the newest checkpoint is " + (folder_ / "run/step-00000001.ckpt"));
  EXPECT_FALSE(fs::exists(folder_ / "run/step-00000002.ckpt"));
}

// The limit is named while too few files may be opened, and no file is made half.
TEST_F(CheckpointManagerTest, TooFewOpenFilesAreSaidWithTheirLimit) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  set_state(1);
  checkpoints.save(state_);
  const std::string first = checkpoints.take_saved()->path;
  const auto mode = fs::status(first).permissions();
  set_state(2);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  std::string fault = "none yet";
  for (rlim_t left = 0; !fault.empty(); ++left) {
    ASSERT_LT(left, 20u) << fault;
    const int next = dup(0);  // descriptors are given from below
    close(next);
    const rlimit few{static_cast<rlim_t>(next) + left, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    fault.clear();
    try {
      checkpoints.save(state_);
    } catch (const io::Error& error) {
      fault = error.what();
    }
    setrlimit(RLIMIT_NOFILE, &before);
    if (fault.empty()) break;
    EXPECT_VALUES(fault, "open files " + std::to_string(few.rlim_cur) + " -n");
    EXPECT_CONTAINS(fault, "; the ");
    EXPECT_EQ(fault.find("there is no checkpoint"), std::string::npos) << fault;
    expect_saved(first, 1);
    set_state(2);
  }
  const std::string second = checkpoints.take_saved()->path;
  EXPECT_EQ(fs::status(second).permissions(), mode);
  expect_saved(second, 2);
}

// A file system of 1 MiB with the checkpoints of steps 1 to 3 and a filler that leaves `free`
// bytes.
class FullFileSystem {
 public:
  FullFileSystem(std::string path, const std::function<void()>& save_three, std::uintmax_t free)
      : path_(std::move(path)),
        is_mounted_(mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m") == 0) {
    if (!is_mounted_) return;
    save_three();
    const std::string filler = path_ + "/filler";
    {
      std::ofstream file(filler);
      while (file << std::string(4096, 'x') << std::flush) {
      }
    }
    fs::resize_file(filler, fs::file_size(filler) - free);
  }
  ~FullFileSystem() {
    if (is_mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  FullFileSystem(const FullFileSystem&) = delete;
  FullFileSystem& operator=(const FullFileSystem&) = delete;

  bool is_mounted() const { return is_mounted_; }

 private:
  std::string path_;
  bool is_mounted_;
};

// With each number of free blocks from none to more than a checkpoint and `latest` take: the arrays
// alone may fit, and the rest not.
TEST_F(CheckpointManagerTest, AFullFileSystemIsGivenRoomByOlderCheckpoints) {
  const std::string disk = folder_ / "run";
  keep_last_ = 3;
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  const auto save = [&](std::int64_t step) {
    set_state(step);
    checkpoints.save(state_);
  };
  const auto save_three = [&] {
    for (const std::int64_t step : {1, 2, 3}) save(step);
  };
  int times_full = 0;
  for (std::uintmax_t free = 0;; free += 4096) {
    SCOPED_TRACE(std::to_string(free) + " bytes are free");
    const FullFileSystem full(disk, save_three, free);
    if (!full.is_mounted()) GTEST_SKIP() << "may not mount a file system";
    notices_.clear();
    ASSERT_NO_THROW(save(4));
    expect_saved(checkpoints.take_saved().value().path, 4);
    if (notices_.empty()) break;  // all fits
    ++times_full;
    EXPECT_EQ(notices_.size(), 1u);
    EXPECT_VALUES(notices_[0], "2 older checkpoints deleted");
    for (const int step : {1, 2, 3, 4})
      EXPECT_EQ(fs::exists(disk + "/" + io::checkpoint_file_name(step)), step > 2) << step;
  }
  EXPECT_GT(times_full, 2);
}

// Unlike a full file system, a limit of the process is not raised by deleting what it has saved.
TEST_F(CheckpointManagerTest, AFileSizeLimitDeletesNothing) {
  keep_last_ = 3;
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  for (const std::int64_t step : {1, 2}) {
    set_state(step);
    checkpoints.save(state_);
  }
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{512, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  set_state(3);
  EXPECT_THROW(checkpoints.save(state_), io::CannotCreateError);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  for (const int step : {1, 2})
    EXPECT_TRUE(fs::exists(folder_ / "run/" + io::checkpoint_file_name(step))) << step;
  for (const std::string& notice : notices_)
    EXPECT_EQ(notice.find("deleted"), std::string::npos) << notice;
}

TEST_F(CheckpointManagerTest, TheHistoryKeepsTheFirstSaveAndTheLastOnes) {
  engine::CheckpointManager checkpoints = this->checkpoints(false);
  std::vector<std::uintmax_t> sizes;
  std::string path;
  for (std::int64_t step = 1; step <= 70; ++step) {
    set_state(step);
    checkpoints.save(state_);
    path = checkpoints.take_saved()->path;
    sizes.push_back(fs::file_size(path));
  }
  EXPECT_EQ(sizes[68], sizes[69]);
  const io::Checkpoint last = io::load_description(path);
  ASSERT_EQ(last.history.size(), 64u);
  EXPECT_EQ(last.history[0].step, 1);
  for (std::size_t i = 1; i < 64; ++i)
    EXPECT_EQ(last.history[i].step, 70 - 63 + static_cast<std::int64_t>(i));
}

}  // namespace
