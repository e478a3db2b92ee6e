// The numbers of an array of a checkpoint or a file of arrays.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace test_support {

// Returns those of the array `name`; a missing one is a failure of the test. REQUIRES: its elements
// have the type T.
template <class T>
std::vector<T> numbers_of(const std::vector<io::NamedArray>& arrays, const std::string& name) {
  for (const io::NamedArray& array : arrays) {
    if (array.name != name) continue;
    std::vector<T> values(array.data.size() / sizeof(T));
    std::memcpy(values.data(), array.data.data(), array.data.size());
    return values;
  }
  ADD_FAILURE() << "no array " << name;
  return {};
}

}  // namespace test_support
