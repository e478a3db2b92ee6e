// A rank that remains saves a state that its own memory suffices for if another rank is lost: rank
// 0, or rank 1 if that is rank 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <stdexcept>
#include <string>

#include "backends/backend_error.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/engine/train/trainer_fixture.h"
#include "tests/support/test_support.h"

namespace {

using trainer_fixture::Averaging;
using trainer_fixture::on_ranks;
using trainer_fixture::Options;
using trainer_fixture::Rank;

constexpr std::int64_t kFailed = 3;  // its exchange fails on both ranks

struct Loss {
  Averaging averaging;
  int rank = 1;            // the lost one of two
  bool on_device = false;  // the other rank does not have its state in host memory, which is what
                           // the trainer sees of a device
};

class Killed : public std::runtime_error {
 public:
  Killed() : std::runtime_error("killed") {}
};

// Returns the memory of the averaging that other ranks do not have.
std::string own_memory(const Rank& rank) {
  std::string bytes;
  for (const engine::PolicyState& s : rank.policy->state())
    if (s.local) bytes.append(static_cast<const char*>(s.buffer->data()), s.buffer->bytes());
  return bytes;
}

// Returns the newest checkpoint of a run whose step kFailed fails; `unsent`: own_memory() of the
// remaining rank after the step before.
io::Checkpoint saved_after_loss(const std::string& folder, const Loss& loss,
                                std::string* unsent = nullptr) {
  engine::StepControl control[2];
  on_ranks(2,
           {.steps = 1 << 20,
            .folder = folder,
            .take_folder = [] { return true; },
            .evaluates = false,
            .averaging = loss.averaging},
           [&](Rank& rank) {
             const bool is_lost = rank.number() == loss.rank;
             if (loss.on_device) rank.state.control = &control[rank.number()];
             const auto fail = [&rank, is_lost] {
               if (rank.step() != kFailed - 1) return;
               if (is_lost) throw Killed();
               throw backends::PeerError("the other rank is gone");
             };
             rank.gradients->before = [fail](const backends::Call&) { fail(); };
             rank.after_step = [&, fail](std::int64_t step) {
               if (step == kFailed - 1 && !is_lost && unsent != nullptr) *unsent = own_memory(rank);
               if (loss.averaging == Averaging::kNone) fail();
             };
             if (is_lost)
               EXPECT_THROW(rank.run(), Killed);
             else
               EXPECT_THROW(rank.run(), backends::PeerError);
           });
  const std::string newest = io::find_newest_checkpoint(folder, nullptr);
  EXPECT_NE(newest, "");
  return newest.empty() ? io::Checkpoint{} : io::load_checkpoint(newest);
}

// Expects each array to be that of the remaining rank in a run that saves after every step.
void expect_state_of_its_step(const io::Checkpoint& saved, const Loss& loss) {
  const test_support::TemporaryDirectory folder;
  on_ranks(2,
           {.steps = kFailed,
            .save = {1},
            .folder = folder.path().string(),
            .evaluates = false,
            .averaging = loss.averaging},
           [&](Rank& rank) { rank.run(); });
  const io::Checkpoint expected =
      io::load_checkpoint(folder / io::checkpoint_file_name(saved.global_step));
  ASSERT_FALSE(saved.arrays.empty());
  for (const io::NamedArray& array : saved.arrays) {
    const io::NamedArray* other = expected.find(array.section, array.name);
    const io::NamedArray* const of_rank_1 =
        expected.find(io::Section::kRankState, "rank1/" + array.name);
    if (loss.rank == 0 && of_rank_1 != nullptr) other = of_rank_1;
    ASSERT_NE(other, nullptr) << array.name;
    EXPECT_EQ(array.data, other->data) << array.name;
  }
  EXPECT_EQ(saved.step_in_epoch, expected.step_in_epoch);
}

class LostRank : public testing::TestWithParam<int> {};

TEST_P(LostRank, ItsGradientsLoseNoStep) {
  for (const Averaging averaging : {Averaging::kGradients, Averaging::kCodedGradients}) {
    const test_support::TemporaryDirectory folder;
    const Loss loss{averaging, GetParam()};
    const io::Checkpoint saved = saved_after_loss(folder.path().string(), loss);
    EXPECT_EQ(saved.global_step, kFailed - 1);
    expect_state_of_its_step(saved, loss);
  }
}

// The sum of what ranks have not sent is what counts, so one rank continues with it, whichever has
// saved it.
TEST_P(LostRank, WhatTheOtherHadNotSentIsSentOnce) {
  for (const int world : {2, 3}) {
    const test_support::TemporaryDirectory folder;
    std::string unsent;
    saved_after_loss(folder.path().string(), {Averaging::kCodedGradients, GetParam()}, &unsent);
    ASSERT_NE(unsent, std::string(unsent.size(), '\0'));
    on_ranks(world,
             {.folder = folder.path().string(),
              .evaluates = false,
              .averaging = Averaging::kCodedGradients},
             [&](Rank& rank) {
               EXPECT_NE(rank.checkpoints.resume("auto", rank.state), "");
               EXPECT_EQ(rank.step(), kFailed - 1);
               EXPECT_EQ(own_memory(rank),
                         rank.number() == 0 ? unsent : std::string(unsent.size(), '\0'));
             });
  }
}

// The first averaging is copied, and the second one if there was time.
TEST_P(LostRank, OfAveragedParametersACopyIsSaved) {
  const test_support::TemporaryDirectory folder;
  const Loss loss{Averaging::kParameters, GetParam()};
  const io::Checkpoint saved = saved_after_loss(folder.path().string(), loss);
  EXPECT_GE(saved.global_step, 1);
  EXPECT_LT(saved.global_step, kFailed);
  expect_state_of_its_step(saved, loss);
}

TEST_P(LostRank, OfIndependentOnesTheOthersModelIsSaved) {
  const test_support::TemporaryDirectory folder;
  const Loss loss{Averaging::kNone, GetParam()};
  const io::Checkpoint saved = saved_after_loss(folder.path().string(), loss);
  EXPECT_EQ(saved.global_step, kFailed - 1);
  expect_state_of_its_step(saved, loss);
}

TEST_P(LostRank, OfTheStateOfADeviceACopyIsSaved) {
  for (const Averaging averaging : {Averaging::kGradients, Averaging::kCodedGradients,
                                    Averaging::kParameters, Averaging::kNone}) {
    const test_support::TemporaryDirectory folder;
    const Loss loss{averaging, GetParam(), /*on_device=*/true};
    const io::Checkpoint saved = saved_after_loss(folder.path().string(), loss);
    EXPECT_GE(saved.global_step, 1);
    EXPECT_LT(saved.global_step, kFailed);
    expect_state_of_its_step(saved, loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LostRank, testing::Values(0, 1), [](const auto& tested) {
  return tested.param == 0 ? std::string("zero") : std::string("one");
});

// Rank 1 gets the folder after rank 0 has saved and left. Its replica is another one, and later.
TEST(LostRankOfThree, RankOneDoesNotReplaceWhatALivingRankZeroHasSaved) {
  const test_support::TemporaryDirectory folder;
  std::promise<void> rank_0_has_ended;
  std::shared_future<void> ended = rank_0_has_ended.get_future().share();
  const std::map<int, std::int64_t> fails_after{{0, 2}, {1, 3}, {2, 2}};
  on_ranks(3,
           {.steps = 1 << 20,
            .folder = folder.path().string(),
            .take_folder =
                [&] {
                  ended.wait();
                  return true;
                },
            .evaluates = false,
            .averaging = Averaging::kNone},
           [&](Rank& rank) {
             rank.after_step = [&](std::int64_t step) {
               if (step != fails_after.at(rank.number())) return;
               if (rank.number() == 2) throw Killed();
               throw backends::PeerError("rank 2 is gone");
             };
             if (rank.number() == 2) {
               EXPECT_THROW(rank.run(), Killed);
             } else {
               EXPECT_THROW(rank.run(), backends::PeerError);
             }
             if (rank.number() == 0) rank_0_has_ended.set_value();
           });
  EXPECT_EQ(io::find_newest_checkpoint(folder.path().string(), nullptr),
            folder / io::checkpoint_file_name(2));
}

}  // namespace
