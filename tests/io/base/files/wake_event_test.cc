// The event descriptor that wakes a thread.
#include "io/base/files/wake_event.h"

#include <gtest/gtest.h>

#include <exception>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/no_descriptors.h"

namespace {

// The undefined-behavior sanitizer needs descriptors to look at the error.
TEST(WakeEvent, WithoutADescriptorTheLimitIsNamed) {
  std::exception_ptr error;
  {
    const test_support::NoDescriptors none;
    try {
      base::WakeEvent event;
    } catch (...) {
      error = std::current_exception();
    }
  }
  ASSERT_TRUE(error);
  EXPECT_VALUES(test_support::error_of<io::LimitError>([&] { std::rethrow_exception(error); }),
                "event open files");
}

}  // namespace
