// EXPECT_API_ERROR(statement, type, code, part): which exception of the interface a call ends with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#define EXPECT_API_ERROR(statement, type, code, part)                            \
  try {                                                                          \
    statement;                                                                   \
    ADD_FAILURE() << "nothing thrown, expected " #type;                          \
  } catch (const engine::api::type& error) {                                     \
    const std::string expected_part = part;                                      \
    EXPECT_EQ(error.exit_code(), code);                                          \
    EXPECT_NE(std::string(error.what()).find(expected_part), std::string::npos)  \
        << "\"" << error.what() << "\" lacks \"" << expected_part << "\"";       \
  } catch (const std::exception& error) {                                        \
    ADD_FAILURE() << "expected " #type ", another was thrown: " << error.what(); \
  }
