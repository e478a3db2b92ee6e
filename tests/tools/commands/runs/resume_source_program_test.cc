// The checkpoint from which a run continues, if the newest file of the folder is damaged or belongs
// to another run: the options, the run's id and the state are those of the same checkpoint.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "io/checkpoint/checkpoint.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

namespace fs = std::filesystem;
using program::quick_train;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::read_text;
using test_support::TemporaryDirectory;
using test_support::write_text;

class ResumeSource : public testing::Test {
 protected:
  ResumeSource() {
    expect_success(engine(
        quick_train(argv("--epochs 2 --save-every 5 --keep-last 0 --lr 0.03 --save-dir", run_))));
  }
  // Adds a checkpoint of step 20 of another run, which `latest` does not name.
  void add_foreign(const std::string& option, const std::string& value) const {
    const std::string other = folder_ / "other";
    expect_success(engine(quick_train(argv("--epochs 4 --save-dir", other, option, value))));
    fs::copy(other + "/step-00000020.ckpt", run_ + "/step-00000020.ckpt");
  }
  static std::string id_of(const std::string& file) { return io::load_description(file).run_id; }

  TemporaryDirectory folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(ResumeSource, WithoutRunJsonADamagedNewestCheckpointIsSkipped) {
  const std::string id = id_of(run_ + "/step-00000005.ckpt");
  write_text(run_ + "/step-00000010.ckpt", read_text(run_ + "/step-00000010.ckpt").substr(0, 100));
  fs::remove(run_ + "/run.json");
  const CommandResult resumed = expect_success(call("train --resume", run_, "--epochs 3"));
  EXPECT_CONTAINS(resumed.err, "skipped a checkpoint: " + run_ + "/step-00000010.ckpt: truncated");
  EXPECT_EQ(id_of(run_ + "/step-00000015.ckpt"), id);
}

TEST_F(ResumeSource, WithoutRunJsonACheckpointOfAnotherRunIsSkipped) {
  const std::string id = id_of(run_ + "/step-00000010.ckpt");
  add_foreign("--lr", "0.2");
  fs::remove(run_ + "/run.json");
  const CommandResult resumed = expect_success(call("train --resume", run_, "--epochs 3"));
  EXPECT_EQ(id_of(run_ + "/step-00000015.ckpt"), id);
  EXPECT_CONTAINS(resumed.err, "changed: epochs 2 -> 3 (--epochs)\n");
}

TEST_F(ResumeSource, ACheckpointOfAnotherRunDoesNotRejectTheOptionsOfThis) {
  add_foreign("--optimizer", "adamw");
  const std::string next = folder_ / "next";
  expect_success(call("train --resume", run_, "--epochs 3 --save-dir", next));
  EXPECT_EQ(io::load_description(next + "/step-00000015.ckpt").global_step, 15);
}

}  // namespace
