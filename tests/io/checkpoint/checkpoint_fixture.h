// A checkpoint with something of everything, and an assembler of containers that shares no code
// with the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace checkpoint_fixture {

using Bytes = std::vector<std::byte>;

io::Checkpoint sample_checkpoint(std::int64_t step = 600);
void expect_equal(const io::Checkpoint& a, const io::Checkpoint& b);

// A container around any header and tensors, with all sums right: what a clever attacker would hand
// in.
Bytes assemble(const Bytes& header, const Bytes& tensors, std::uint32_t version = 4);
// The header and the tensors of a container.
Bytes header_of(const Bytes& file);
Bytes tensors_of(const Bytes& file);

template <class T>
T get(const Bytes& bytes, std::size_t at) {
  T value{};
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(bytes.at(at + i)) << (8 * i));
  return value;
}
template <class T>
void set(Bytes& bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes.at(at + i) = static_cast<std::byte>(value >> (8 * i));
}

void write_bytes(const std::string& path, const Bytes& bytes);
std::vector<std::string> names_in(const std::string& folder);  // sorted

// The largest block that was allocated since the last reset, in bytes.
void reset_largest_allocation();
std::size_t largest_allocation();

}  // namespace checkpoint_fixture
