// Writes tags, varints, and pieces that are passed on without a copy.
#include "io/base/formats/protobuf_message.h"

#include <bit>
#include <utility>

namespace base {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

}  // namespace

std::string& ProtobufMessage::own() {
  if (pieces_.empty() || !pieces_.back().others.empty()) pieces_.emplace_back();
  return pieces_.back().own;
}

// Seven bits per byte, the lowest first; all bytes except the last have the highest bit set.
void ProtobufMessage::varint(std::uint64_t value) {
  std::string& text = own();
  for (;; value >>= 7) {
    ++size_;
    if (value < 0x80) return text.push_back(static_cast<char>(value));
    text.push_back(static_cast<char>(value | 0x80));
  }
}

void ProtobufMessage::begin(int field, int wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

// Little-endian.
void ProtobufMessage::fixed(std::uint64_t value, int bytes) {
  std::string& text = own();
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  size_ += static_cast<std::uint64_t>(bytes);
}

ProtobufMessage& ProtobufMessage::integer(int field, std::int64_t value) {
  begin(field, kVarint);
  varint(static_cast<std::uint64_t>(value));  // a negative number takes ten bytes
  return *this;
}

ProtobufMessage& ProtobufMessage::real(int field, double value) {
  begin(field, kFixed64);
  fixed(std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

ProtobufMessage& ProtobufMessage::real32(int field, float value) {
  begin(field, kFixed32);
  fixed(std::bit_cast<std::uint32_t>(value), 4);
  return *this;
}

ProtobufMessage& ProtobufMessage::packed(int field, std::span<const double> values) {
  begin(field, kLengthDelimited);
  varint(8 * values.size());
  for (const double value : values) fixed(std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

ProtobufMessage& ProtobufMessage::text(int field, std::string_view text) {
  begin(field, kLengthDelimited);
  varint(text.size());
  own().append(text);
  size_ += text.size();
  return *this;
}

ProtobufMessage& ProtobufMessage::view(int field, std::span<const std::byte> bytes) {
  begin(field, kLengthDelimited);
  varint(bytes.size());
  pieces_.back().others = bytes;
  size_ += bytes.size();
  return *this;
}

ProtobufMessage& ProtobufMessage::message(int field, ProtobufMessage message) {
  begin(field, kLengthDelimited);
  varint(message.size_);
  size_ += message.size_;
  for (Piece& piece : message.pieces_) {
    own().append(piece.own);
    pieces_.back().others = piece.others;
  }
  return *this;
}

void ProtobufMessage::write(const Output& output) const {
  for (const Piece& piece : pieces_) {
    output(std::as_bytes(std::span(piece.own)));
    if (!piece.others.empty()) output(piece.others);
  }
}

std::string ProtobufMessage::serialized() const {
  std::string all;
  all.reserve(size_);
  write([&](std::span<const std::byte> bytes) {
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return all;
}

}  // namespace base
