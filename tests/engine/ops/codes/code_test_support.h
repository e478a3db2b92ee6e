// Numbers to encode, and comparisons of codes with those of the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/core/random.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops::code_test {

template <class T>
T uniform(std::uint64_t stream, std::int64_t i) {
  return static_cast<T>(2 * uniform_float(philox(5, stream, static_cast<std::uint64_t>(i))[0]) - 1);
}

// Numbers of one kind; those that are not finite are in the last block, and a rest of the first.
template <class T>
std::vector<T> numbers(const std::string& kind, std::int64_t count, std::uint64_t stream) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    T& value = values[static_cast<std::size_t>(i)];
    value = uniform<T>(stream, i);
    if (kind == "zeros") value = i % 2 == 0 ? T(0) : T(-0.0);
    if (kind == "denormals") value *= std::numeric_limits<T>::min() / 2;
    if (kind == "large") value *= static_cast<T>(std::numeric_limits<float>::max());
    if (kind == "mixed") value = std::ldexp(value, static_cast<int>(i % 40) - 30);
  }
  if (kind == "infinite") values.back() = -std::numeric_limits<T>::infinity();
  if (kind == "nan") values[values.size() / 2] = std::numeric_limits<T>::quiet_NaN();
  return values;
}

inline const std::vector<std::string> kKinds = {"uniform", "mixed",    "zeros", "denormals",
                                                "large",   "infinite", "nan"};

template <class T>
T kept_of(T dropped) {
  return std::isfinite(dropped) ? dropped : T(0);
}

// Equal bit for bit; a NaN may have another payload.
template <class T>
void expect_same(const std::vector<T>& found, const std::vector<T>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::memcmp(&found[i], &expected[i], sizeof(T)), 0)
        << what << " " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

inline std::byte* bytes_of(const cuda_test::DeviceOperand<std::uint8_t>& codes) {
  return static_cast<std::byte*>(codes.view().data);
}

inline void expect_codes(const std::vector<std::uint8_t>& found,
                         const std::vector<std::byte>& expected) {
  ASSERT_GE(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(found[i], static_cast<std::uint8_t>(expected[i])) << "byte " << i;
  for (std::size_t i = expected.size(); i < found.size(); ++i)
    ASSERT_EQ(found[i], 0xa5) << "beyond the code, byte " << i;
}

}  // namespace engine::ops::code_test
