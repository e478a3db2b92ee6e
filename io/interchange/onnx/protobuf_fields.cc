// Checks every length against the end of the message that contains it.
#include "io/interchange/onnx/protobuf_fields.h"

#include <algorithm>
#include <bit>

namespace io {
namespace {

enum ProtobufWireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

}  // namespace

void BufferedBytes::fill(std::uint64_t offset) {
  constexpr std::uint64_t kBufferBytes = 32 << 10;
  begin_ = offset;
  buffer_.clear();  // a read that fails leaves nothing
  buffer_ = source_.bytes(offset, std::min(kBufferBytes, source_.size() - offset));
}

void ProtobufFields::fail(const std::string& what) const {
  throw DataError(bytes_.source().name() + ": at byte " + std::to_string(begin_) + ": " + what);
}

std::uint64_t ProtobufFields::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == end_) fail("a number extends beyond its message; the file is damaged or not ONNX");
    const std::uint8_t byte = bytes_.at(at_++);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  fail("a number has more than 10 bytes; the file is damaged or not ONNX");
}

std::uint64_t ProtobufFields::fixed(int bytes) {
  if (end_ - at_ < static_cast<std::uint64_t>(bytes))
    fail("a number extends beyond its message; the file is damaged or not ONNX");
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= std::uint64_t{bytes_.at(at_++)} << (8 * i);
  return value;
}

bool ProtobufFields::next() {
  begin_ = at_;
  if (at_ == end_) return false;
  const std::uint64_t tag = varint();
  wire_type_ = static_cast<int>(tag & 7);
  if (tag >> 3 == 0 || tag >> 3 > 536'870'911)
    fail("field " + std::to_string(tag >> 3) + ", expected 1 to 536870911");
  field_ = static_cast<int>(tag >> 3);
  switch (wire_type_) {
    case kVarint:
      value_ = varint();
      return true;
    case kFixed64:
      value_ = fixed(8);
      return true;
    case kFixed32:
      value_ = fixed(4);
      return true;
    case kLengthDelimited: {
      const std::uint64_t length = varint();
      if (length > end_ - at_)
        fail("field " + std::to_string(field_) + " has " + std::to_string(length) +
             " bytes, its message " + std::to_string(end_ - at_) +
             "; the file is damaged or not ONNX");
      extent_ = {at_, length};
      at_ += length;
      return true;
    }
    default:
      fail("wire type " + std::to_string(wire_type_) + ", expected 0, 1, 2 or 5");
  }
}

void ProtobufFields::expect(int wire_type, const char* expected) const {
  if (wire_type_ != wire_type)
    fail("field " + std::to_string(field_) + " has wire type " + std::to_string(wire_type_) +
         ", expected " + std::to_string(wire_type) + " (" + expected + ")");
}

std::int64_t ProtobufFields::integer() const {
  expect(kVarint, "an integer");
  return static_cast<std::int64_t>(value_);
}

float ProtobufFields::real32() const {
  expect(kFixed32, "a float");
  return std::bit_cast<float>(static_cast<std::uint32_t>(value_));
}

ByteExtent ProtobufFields::extent() const {
  expect(kLengthDelimited, "text, bytes or a message");
  return extent_;
}

std::string ProtobufFields::text(std::uint64_t max_bytes) {
  const ByteExtent place = extent();
  if (place.bytes > max_bytes)
    fail("field " + std::to_string(field_) + " has a text of " + std::to_string(place.bytes) +
         " bytes, expected at most " + std::to_string(max_bytes));
  std::string text;
  text.reserve(place.bytes);
  for (std::uint64_t i = 0; i < place.bytes; ++i)
    text.push_back(static_cast<char>(bytes_.at(place.offset + i)));
  return text;
}

void ProtobufFields::append_integers(std::vector<std::int64_t>& values, std::size_t max_count) {
  if (wire_type_ != kVarint) return append_packed(bytes_, extent(), values, max_count);
  if (values.size() == max_count) fail("more than " + std::to_string(max_count) + " numbers");
  values.push_back(static_cast<std::int64_t>(value_));
}

void ProtobufFields::append_reals(std::vector<float>& values, std::size_t max_count) {
  const ByteExtent packed = wire_type_ == kFixed32 ? ByteExtent{} : extent();
  const std::uint64_t count = wire_type_ == kFixed32 ? 1 : packed.bytes / sizeof(float);
  if (packed.bytes % sizeof(float) != 0 || count > max_count - values.size())
    fail("floats of " + std::to_string(packed.bytes) + " bytes, expected at most " +
         std::to_string(max_count) + " numbers");
  if (wire_type_ == kFixed32) return values.push_back(real32());
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    for (std::uint64_t byte = 0; byte < sizeof bits; ++byte)
      bits |= std::uint32_t{bytes_.at(packed.offset + i * sizeof bits + byte)} << (8 * byte);
    values.push_back(std::bit_cast<float>(bits));
  }
}

void ProtobufFields::append_packed(BufferedBytes& bytes, ByteExtent extent,
                                   std::vector<std::int64_t>& values, std::size_t max_count) {
  ProtobufFields packed(bytes, extent);
  packed.begin_ = extent.offset;
  while (packed.at_ != packed.end_) {
    if (values.size() == max_count)
      packed.fail("more than " + std::to_string(max_count) + " numbers");
    values.push_back(static_cast<std::int64_t>(packed.varint()));
  }
}

}  // namespace io
