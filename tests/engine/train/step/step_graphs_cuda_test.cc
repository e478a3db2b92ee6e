// Work that is issued, captured, and launched as graphs.
#include "engine/train/step/step_graphs.h"

#include <gtest/gtest.h>

#include "engine/core/arena.h"
#include "engine/ops/elementwise/elementwise.h"
#include "tests/support/expect_contains.h"

namespace {

using engine::StepShape;

constexpr engine::Device kDevice{engine::Device::Kind::kCuda, 0};

// Another rank whose captures fail if it says so.
class OtherRank final : public engine::DeviceGradientSum {
 public:
  void ready(std::int64_t, void*) override {}
  void finish(void*) override {}
  bool capturable() const override { return true; }
  void drop_step() override { ++dropped; }
  std::string first_failure(const std::string& own) override {
    ++met;
    return own.empty() ? failure : own;
  }
  void wait(void*) override {}

  std::string failure;
  int met = 0, dropped = 0;
};

class StepGraphs : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    engine::cuda::use_device(0);
    stream_.emplace();
    counter_ = engine::Arena(sizeof(std::int64_t), kDevice);
    graphs_.emplace(2, stream_->handle(), &other_, "", [] {});
  }

  // Work in slots 0, 1, 0, ...; returns true if it was issued, not launched as a graph alone.
  bool step(const StepShape& shape, std::int64_t times = 1) {
    const int before = issued_;
    graphs_->run(slot_, shape, [&] {
      ++issued_;
      engine::KernelContext context;
      context.device = kDevice;
      context.stream = stream_->handle();
      for (std::int64_t i = 0; i < times; ++i)
        engine::ops::increment(context,
                               {counter_.data(), engine::DType::kI64, engine::Shape{1}, kDevice});
    });
    slot_ = 1 - slot_;
    return issued_ > before;
  }
  std::int64_t counted() {
    std::int64_t count = 0;
    engine::cuda::copy_async(&count, counter_.data(), sizeof count, stream_->handle());
    stream_->synchronize();
    return count;
  }

  std::optional<engine::cuda::Stream> stream_;
  engine::Arena counter_;
  OtherRank other_;
  std::optional<engine::StepGraphs> graphs_;
  int slot_ = 0, issued_ = 0;
};

TEST_F(StepGraphs, EachSlotIsCapturedOnceAfterTwoSteps) {
  const StepShape shape{.counts = {4, 3}};
  EXPECT_EQ(graphs_->text(), "captured from step 3 on");
  for (const bool issued : {true, true, true, true, false, false, false})
    EXPECT_EQ(step(shape), issued);
  EXPECT_EQ(other_.met, 2);
  EXPECT_EQ(counted(), 7);
  EXPECT_EQ(graphs_->text(), "captured, 1 nodes");
}

TEST_F(StepGraphs, EachShapeHasItsOwn) {
  const StepShape shapes[] = {{.counts = {4, 3}},
                              {.counts = {3, 4}},
                              {.counts = {4, 3}, .first = false},
                              {.counts = {4, 3}, .last = false}};
  for (int round = 0; round < 5; ++round) {
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(step(shapes[i], i + 1), round < 4) << round;
    slot_ = (round + 1) % 2;
  }
  EXPECT_EQ(counted(), 5 * (1 + 2 + 3 + 4));
  EXPECT_VALUES(graphs_->text(), "4 nodes 4 shapes");
}

TEST_F(StepGraphs, ThereAreAtMostSixteenShapes) {
  const auto shape = [](std::int64_t count) { return StepShape{.counts = {count}}; };
  for (int round = 0; round < 6; ++round)
    for (std::int64_t count = 0; count < 18; ++count) step(shape(count));
  EXPECT_FALSE(step(shape(14)));
  EXPECT_TRUE(step(shape(17)));
  EXPECT_EQ(counted(), 6 * 18 + 2);
}

// Shares that move have new shapes throughout a run: graphs of shapes that are no longer used give
// way, and a shape that comes back is captured again.
TEST_F(StepGraphs, AGraphThatIsNoLongerUsedGivesWay) {
  const auto shape = [](std::int64_t count) { return StepShape{.counts = {count}}; };
  const auto use = [&](std::int64_t count, int times) {
    bool issued = true;
    for (int i = 0; i < times; ++i) issued = step(shape(count));
    return issued;
  };
  for (std::int64_t count = 0; count < 200; ++count) EXPECT_FALSE(use(count, 40)) << count;
  EXPECT_EQ(graphs_->text(), "captured, up to 1 nodes in 16 shapes");
  EXPECT_TRUE(use(0, 2));
  EXPECT_FALSE(use(0, 3));
  EXPECT_EQ(other_.met, 2 * 201);
  EXPECT_EQ(counted(), 200 * 40 + 5);
}

// No rank launches a graph of which another one has none.
TEST_F(StepGraphs, AFailureOfAnotherRankEndsCaptures) {
  const StepShape captured{.counts = {1}}, shape{.counts = {2}};
  for (int i = 0; i < 5; ++i) step(captured);
  EXPECT_FALSE(step(captured));
  other_.failure = "rank 1: no memory";
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(step(shape));
  EXPECT_TRUE(step(captured));
  EXPECT_TRUE(graphs_->has_failed());
  EXPECT_FALSE(graphs_->usable());
  EXPECT_EQ(graphs_->text(), "not captured: the capture failed, rank 1: no memory");
  EXPECT_EQ(counted(), 6 + 4 + 1);
}

}  // namespace
