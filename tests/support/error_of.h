// The message of the error that a call throws.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace test_support {

// `otherwise` if the call throws none.
template <class Error, class Call>
std::string error_or(Call&& call, const std::string& otherwise) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return otherwise;
}

// The test fails if the call throws none.
template <class Error, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace test_support
