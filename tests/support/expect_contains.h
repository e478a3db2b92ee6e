// EXPECT_CONTAINS(text, part): that a text has a part; EXPECT_LACKS: that it has not.
#pragma once

#include <gtest/gtest.h>

#include <string>

#define EXPECT_CONTAINS(text, part)                          \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "\"" << (text) << "\" lacks \"" << (part) << "\""
#define ASSERT_CONTAINS(text, part)                          \
  ASSERT_NE(std::string(text).find(part), std::string::npos) \
      << "\"" << (text) << "\" lacks \"" << (part) << "\""
#define EXPECT_LACKS(text, part)                             \
  EXPECT_EQ(std::string(text).find(part), std::string::npos) \
      << "\"" << (text) << "\" has \"" << (part) << "\""
