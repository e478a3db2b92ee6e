// Bytes as text.
#include "io/base/formats/base64.h"

#include <gtest/gtest.h>

namespace {

TEST(Base64, IsThatOfTheStandard) {  // RFC 4648, section 10
  EXPECT_EQ(base::base64_text(""), "");
  EXPECT_EQ(base::base64_text("f"), "Zg==");
  EXPECT_EQ(base::base64_text("fo"), "Zm8=");
  EXPECT_EQ(base::base64_text("foo"), "Zm9v");
  EXPECT_EQ(base::base64_text("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base::base64_text("\xFB\xFF\xFE"), "+//+");
}

}  // namespace
