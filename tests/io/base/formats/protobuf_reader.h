// Reads back messages of Protocol Buffers, for tests of what writes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace protobuf_reader {

struct Field {
  int number = 0, wire_type = 0;
  std::uint64_t value = 0;  // varint, or the bits of a fixed number
  std::string bytes = {};   // length-delimited

  std::int64_t integer() const { return static_cast<std::int64_t>(value); }
  float real() const {
    const auto bits = static_cast<std::uint32_t>(value);
    float number_of_bits;
    std::memcpy(&number_of_bits, &bits, sizeof bits);
    return number_of_bits;
  }
};

class Message {
 public:
  // Throws std::runtime_error for what is no message.
  explicit Message(std::string_view text) : text_(text) {
    while (at_ < text_.size()) read_field();
  }

  const std::vector<Field>& fields() const { return fields_; }
  // All fields of this number, in their order.
  std::vector<Field> all(int number) const {
    std::vector<Field> found;
    for (const Field& field : fields_)
      if (field.number == number) found.push_back(field);
    return found;
  }
  // The only one.
  Field one(int number) const {
    const std::vector<Field> found = all(number);
    if (found.size() != 1)
      throw std::runtime_error(std::to_string(found.size()) + " fields of number " +
                               std::to_string(number) + ", expected one");
    return found[0];
  }
  Message message(int number) const { return Message(one(number).bytes); }
  std::vector<Message> messages(int number) const {
    std::vector<Message> found;
    for (const Field& field : all(number)) found.emplace_back(field.bytes);
    return found;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a varint of more than ten bytes");
  }
  std::string_view take(std::uint64_t count) {
    if (count > text_.size() - at_) throw std::runtime_error("the message ends within a field");
    at_ += count;
    return std::string_view(text_).substr(at_ - count, count);
  }
  void read_field() {
    const std::uint64_t tag = varint();
    Field field{.number = static_cast<int>(tag >> 3), .wire_type = static_cast<int>(tag & 7)};
    if (field.number < 1) throw std::runtime_error("a field of number 0");
    if (field.wire_type == 0) {
      field.value = varint();
    } else if (field.wire_type == 2) {
      field.bytes = take(varint());
    } else if (field.wire_type == 5) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, take(sizeof bits).data(), sizeof bits);
      field.value = bits;
    } else {
      throw std::runtime_error("wire type " + std::to_string(field.wire_type));
    }
    fields_.push_back(std::move(field));
  }

  std::string text_;
  std::size_t at_ = 0;
  std::vector<Field> fields_;
};

}  // namespace protobuf_reader
