// The hint after a mistyped name.
#include <gtest/gtest.h>

#include "io/base/text/nearest.h"

namespace {

TEST(DidYouMean, NamesTheNearestInOneFormOrSaysNothing) {
  const std::vector<std::string> names{"batch-size", "epochs", "seed"};
  EXPECT_EQ(base::did_you_mean("bacth_size", names), ": did you mean 'batch-size'?");
  EXPECT_EQ(base::did_you_mean("epoch", names, "--"), ": did you mean '--epochs'?");
  EXPECT_EQ(base::did_you_mean("momentum", names, "--"), "");
  EXPECT_EQ(base::did_you_mean("seed", {}), "");
}

}  // namespace
