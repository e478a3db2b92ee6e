// Messages in the wire format of Protocol Buffers, written field by field:
// https://protobuf.dev/programming-guides/encoding. Only what event files need.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace io {

class ProtobufWriter {
 public:
  // int32, int64, uint64, bool and enumerations.
  ProtobufWriter& integer(int field, std::int64_t value) {
    key(field, 0);
    return varint(static_cast<std::uint64_t>(value));
  }
  ProtobufWriter& real(int field, double value) {
    key(field, 1);
    return fixed(std::bit_cast<std::uint64_t>(value), 8);
  }
  ProtobufWriter& real32(int field, float value) {
    key(field, 5);
    return fixed(std::bit_cast<std::uint32_t>(value), 4);
  }
  // string, bytes, or a message that was written apart.
  ProtobufWriter& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    text_.append(value);
    return *this;
  }
  ProtobufWriter& message(int field, const ProtobufWriter& value) {
    return bytes(field, value.text_);
  }
  ProtobufWriter& packed(int field, std::span<const double> values) {
    key(field, 2);
    varint(8 * values.size());
    for (const double value : values) fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }

  const std::string& text() const { return text_; }

 private:
  void key(int field, unsigned wire_type) {
    varint((static_cast<std::uint64_t>(field) << 3) | wire_type);
  }
  ProtobufWriter& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    text_.push_back(static_cast<char>(value));
    return *this;
  }
  ProtobufWriter& fixed(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
    return *this;
  }

  std::string text_;
};

}  // namespace io
