// EXPECT_API_ERROR(statement, type, code, values): which exception of the interface a call ends
// with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/support/expect_contains.h"

#define EXPECT_API_ERROR(statement, type, code, values)                          \
  try {                                                                          \
    statement;                                                                   \
    ADD_FAILURE() << "nothing thrown, expected " #type;                          \
  } catch (const engine::api::type& error) {                                     \
    EXPECT_EQ(error.exit_code(), code);                                          \
    EXPECT_VALUES(error.what(), values);                                         \
  } catch (const std::exception& error) {                                        \
    ADD_FAILURE() << "expected " #type ", another was thrown: " << error.what(); \
  }
