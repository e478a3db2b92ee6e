// Arrays and sources of arrays in memory, for tests of files and of comparisons.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/array_source.h"
#include "tests/support/test_support.h"

namespace array_fixture {

using Arrays = std::vector<io::NamedArray>;
using Bytes = std::vector<std::byte>;

// make_interchange_files.py writes these files with NumPy and PyTorch.
inline std::string data_file(const std::string& name) {
  return test_support::source_directory() + "/tests/io/interchange/data/" + name;
}

template <class T>
constexpr base::DType kTypeOf = base::DType::kF32;
template <>
inline constexpr base::DType kTypeOf<double> = base::DType::kF64;
template <>
inline constexpr base::DType kTypeOf<std::int32_t> = base::DType::kI32;
template <>
inline constexpr base::DType kTypeOf<std::int64_t> = base::DType::kI64;
template <>
inline constexpr base::DType kTypeOf<std::uint8_t> = base::DType::kU8;
template <>
inline constexpr base::DType kTypeOf<std::uint16_t> = base::DType::kF16;

template <class T>
io::NamedArray array_of(const std::string& name, const std::vector<T>& values,
                        io::Section section = io::Section::kParameter) {
  io::NamedArray a{name,    section, kTypeOf<T>, {static_cast<std::int64_t>(values.size())},
                   "cpu:0", {}};
  a.data.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(a.data.data(), values.data(), a.data.size());
  return a;
}

template <class T>
io::NamedArray array_of(const std::string& name, std::vector<std::int64_t> shape,
                        const std::vector<T>& values) {
  io::NamedArray a = array_of(name, values);
  a.shape = std::move(shape);
  return a;
}

template <class T>
std::vector<T> values_of(const io::NamedArray& array) {
  std::vector<T> values(array.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

inline void expect_same(const Arrays& a, const Arrays& b) {
  if (a.size() != b.size())
    throw std::runtime_error(std::to_string(a.size()) + " arrays, and " + std::to_string(b.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].name != b[i].name || a[i].type != b[i].type || a[i].shape != b[i].shape ||
        a[i].data != b[i].data)
      throw std::runtime_error("array " + std::to_string(i) + ", '" + a[i].name + "' and '" +
                               b[i].name + "', differ");
}

// A file of arrays without a file. `sections`: as a checkpoint; otherwise as .npz, or .safetensors
// when `ordered` is false.
class MemorySource : public io::ArraySource {
 public:
  explicit MemorySource(Arrays arrays, bool sections = true, bool ordered = true)
      : ArraySource(io::memory_bytes({}, "memory")),
        arrays_(std::move(arrays)),
        sections_(sections),
        ordered_(ordered) {
    for (const io::NamedArray& a : arrays_)
      entries_.push_back(
          {a.name, sections ? a.section : io::Section::kParameter, a.type, a.shape, a.data.size()});
  }
  bool has_sections() const override { return sections_; }
  bool in_model_order() const override { return ordered_; }
  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    if (offset > arrays_[index].data.size() || target.size() > arrays_[index].data.size() - offset)
      throw std::logic_error("read beyond the end of an array");
    std::memcpy(target.data(), arrays_[index].data.data() + offset, target.size());
  }
  void finish() override { ++finished; }

  int finished = 0;

 private:
  Arrays arrays_;
  bool sections_, ordered_;
};

}  // namespace array_fixture
