// The event descriptor that wakes a thread.
#include "io/base/files/wake_event.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/no_descriptors.h"

namespace {

TEST(WakeEvent, WithoutADescriptorTheLimitIsNamed) {
  const test_support::NoDescriptors none;
  EXPECT_CONTAINS(test_support::error_of<io::LimitError>([] { base::WakeEvent event; }),
                  "cannot make an event descriptor: Too many open files; the limit of this process "
                  "is ");
}

}  // namespace
