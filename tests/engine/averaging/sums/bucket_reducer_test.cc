// The exchange of gradients during backward, without a model.
#include "engine/averaging/sums/bucket_reducer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "engine/core/parameter_buffer.h"

namespace {

// A sum that ends only after `release` is counted down.
class SlowSum final : public engine::GradientSum {
 public:
  std::latch started{1}, release{1};
  std::atomic<bool> ended{false};

  std::string note() const override { return ""; }
  void sum(std::int64_t /*first*/, std::int64_t /*count*/) override {
    started.count_down();
    release.wait();
    ended = true;
  }
};

// A step that fails in backward leaves a bucket to the thread, which changes what a rollback
// restores.
TEST(BucketReducer, ChangesNothingAfterWaitIdle) {
  const engine::FlatBuffer gradients(
      engine::DType::kF32,
      {{"weight", engine::TensorLayout::plain(engine::Shape{8}), engine::DType::kF32}});
  SlowSum sum;
  engine::BucketReducer reducer(sum, gradients, {.bytes = 16, .overlap = true});
  reducer.ready(gradients.size() / 2);
  sum.started.wait();
  std::thread releases([&] { sum.release.count_down(); });
  reducer.wait_idle();
  EXPECT_TRUE(sum.ended);
  releases.join();
}

}  // namespace
