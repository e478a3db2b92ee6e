// Rank 0 saves a state that its own memory suffices for if another rank is lost.
#include <gtest/gtest.h>

#include <string>

#include "backends/backend_error.h"
#include "io/checkpoint/checkpoint.h"
#include "tests/engine/train/trainer_fixture.h"
#include "tests/support/test_support.h"

namespace {

using trainer_fixture::Averaging;
using trainer_fixture::on_ranks;
using trainer_fixture::Options;
using trainer_fixture::Rank;

constexpr std::int64_t kFailed = 3;  // its averaging fails on both ranks

// Returns the newest checkpoint of a run whose step kFailed fails. `on_device`: rank 0 does not
// have its state in host memory, which is what the trainer sees of a device.
io::Checkpoint saved_after_loss(const std::string& folder, Averaging averaging, bool on_device) {
  engine::StepControl control[2];
  on_ranks(2, {.steps = 1 << 20, .folder = folder, .evaluates = false, .averaging = averaging},
           [&](Rank& rank) {
             if (on_device) rank.state.control = &control[rank.number()];
             rank.gradients->before = [&rank] {
               if (rank.step() == kFailed - 1) throw backends::PeerError("the other rank is gone");
             };
             EXPECT_THROW(rank.run(), backends::PeerError);
           });
  const std::string newest = io::find_newest_checkpoint(folder, nullptr);
  EXPECT_NE(newest, "");
  return newest.empty() ? io::Checkpoint{} : io::load_checkpoint(newest);
}

// Expects each array to be that of rank 0 in a run that saves after every step.
void expect_state_of_its_step(const io::Checkpoint& saved, Averaging averaging) {
  const test_support::TemporaryDirectory folder;
  on_ranks(2,
           {.steps = kFailed,
            .save = {1},
            .folder = folder.path().string(),
            .evaluates = false,
            .averaging = averaging},
           [&](Rank& rank) { rank.run(); });
  const io::Checkpoint expected =
      io::load_checkpoint(folder / io::checkpoint_file_name(saved.global_step));
  ASSERT_FALSE(saved.arrays.empty());
  for (const io::NamedArray& array : saved.arrays) {
    const io::NamedArray* const other = expected.find(array.section, array.name);
    ASSERT_NE(other, nullptr) << array.name;
    EXPECT_EQ(array.data, other->data) << array.name;
  }
  EXPECT_EQ(saved.step_in_epoch, expected.step_in_epoch);
}

TEST(LostRank, ItsGradientsLoseNoStep) {
  const test_support::TemporaryDirectory folder;
  const io::Checkpoint saved =
      saved_after_loss(folder.path().string(), Averaging::kGradients, /*on_device=*/false);
  EXPECT_EQ(saved.global_step, kFailed - 1);
  expect_state_of_its_step(saved, Averaging::kGradients);
}

// The first averaging is copied, and the second one if there was time.
TEST(LostRank, OfAveragedParametersACopyIsSaved) {
  const test_support::TemporaryDirectory folder;
  const io::Checkpoint saved =
      saved_after_loss(folder.path().string(), Averaging::kParameters, /*on_device=*/false);
  EXPECT_GE(saved.global_step, 1);
  EXPECT_LT(saved.global_step, kFailed);
  expect_state_of_its_step(saved, Averaging::kParameters);
}

TEST(LostRank, OfTheStateOfADeviceACopyIsSaved) {
  for (const Averaging averaging : {Averaging::kGradients, Averaging::kParameters}) {
    const test_support::TemporaryDirectory folder;
    const io::Checkpoint saved =
        saved_after_loss(folder.path().string(), averaging, /*on_device=*/true);
    EXPECT_GE(saved.global_step, 1);
    EXPECT_LT(saved.global_step, kFailed);
    expect_state_of_its_step(saved, averaging);
  }
}

}  // namespace
