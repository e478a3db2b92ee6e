// The cut into buckets.
#include "engine/averaging/sums/bucket_cut.h"

#include <gtest/gtest.h>

namespace engine {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

TEST(BucketEnds, TheFirstIsOneMebibyteAndTheLastWhatIsLeft) {
  EXPECT_EQ(bucket_ends(kMiB, sizeof(float), 2 * kMiB),
            (std::vector<std::int64_t>{kMiB / 4, 3 * kMiB / 4, kMiB}));
  EXPECT_EQ(bucket_ends(kMiB, sizeof(double), 4 * kMiB),
            (std::vector<std::int64_t>{kMiB / 8, 5 * kMiB / 8, kMiB}));
}

TEST(BucketEnds, SmallBucketsAreAllEqual) {
  EXPECT_EQ(bucket_ends(10, sizeof(float), 16), (std::vector<std::int64_t>{4, 8, 10}));
}

TEST(BucketEnds, ABucketHasAnElementAtLeastAndNothingHasNone) {
  EXPECT_EQ(bucket_ends(2, sizeof(double), 1), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(bucket_ends(0, sizeof(float), kMiB).empty());
}

}  // namespace
}  // namespace engine
