// The numbers of an array of a checkpoint or a file of arrays.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
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

// Returns an array of the numbers `first`, `first` + 1, ...
inline io::NamedArray floats(const std::string& name, const std::vector<std::int64_t>& shape,
                             float first = 0) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  std::vector<float> values(count);
  for (float& value : values) value = first++;
  const auto bytes = std::as_bytes(std::span(values));
  return {.name = name, .shape = shape, .data = {bytes.begin(), bytes.end()}};
}

}  // namespace test_support
