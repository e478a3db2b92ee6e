// Trainings with --shard-optimizer beside the same ones without it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace sharded_training {

inline const session_runner::Options kSharded = "shard-optimizer=true";

// The last checkpoint of a training, without the configuration, which names the option.
inline io::Checkpoint find_checkpoint(int world, const session_runner::Options& options) {
  const test_support::TemporaryDirectory folder;
  exact_support::expect_in_sync(session_runner::train(
      world, session_runner::with(options, "save-dir=" + folder.path().string())));
  io::Checkpoint checkpoint =
      io::load_checkpoint(io::find_newest_checkpoint(folder.path().string(), nullptr));
  checkpoint.config.clear();
  return checkpoint;
}

inline void expect_same(int world, const session_runner::Options& options) {
  const io::Checkpoint whole = find_checkpoint(world, options),
                       shared = find_checkpoint(world, session_runner::with(options, kSharded));
  EXPECT_EQ(session_runner::difference(whole, shared), "") << world << " ranks";
  EXPECT_EQ(whole.counters, shared.counters) << world << " ranks";
}

// Muon's update of the mlp takes too long: a model of three small hidden matrices, for it alone.
class SmallModel {
 public:
  SmallModel() {
    test_support::write_text(folder_ / "small.toml", test_support::layers_toml(R"(
sample_shape=[6,6,1] classes=10
flatten
dense of40 out=40
relu
dense of24 out=24
relu
dense of56 out=56
relu
dense of32 out=32
relu
dense fc out=classes
)"));
  }
  session_runner::Options options() const {
    return {{"model", folder_ / "small.toml"}, {"optimizer", "muon"}};
  }

 private:
  const test_support::TemporaryDirectory folder_;
};

}  // namespace sharded_training
