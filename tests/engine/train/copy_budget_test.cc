// When the state may be copied again.
#include "engine/train/copy_budget.h"

#include <gtest/gtest.h>

namespace {

TEST(CopyBudget, DoesNotCountTheFirstCopy) {
  engine::CopyBudget budget;
  EXPECT_TRUE(budget.allows(100));
  budget.add(100, 103, 0.01);  // with allocations
  EXPECT_TRUE(budget.allows(103));
  budget.add(103, 103.5, 0.01);
  EXPECT_FALSE(budget.allows(153));
  EXPECT_TRUE(budget.allows(153.5));
  budget.add(154, 154.25, 0.02);
  EXPECT_FALSE(budget.allows(166));
  EXPECT_TRUE(budget.allows(167));
}

}  // namespace
