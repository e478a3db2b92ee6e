// Reads the fields of a Protocol Buffers message from a file, without holding the message in
// memory. protobuf_message.h writes such messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint/byte_source.h"

namespace io {

// A part of a file.
struct ByteExtent {
  std::uint64_t offset = 0, bytes = 0;
};

// Reads small pieces of a source through a buffer, which moves with the pieces. For one thread.
class BufferedBytes {
 public:
  // `source` must outlive this.
  explicit BufferedBytes(const ByteSource& source) : source_(source) {}

  const ByteSource& source() const { return source_; }
  // REQUIRES: the offset lies within the source.
  std::uint8_t at(std::uint64_t offset) {
    if (offset < begin_ || offset - begin_ >= buffer_.size()) fill(offset);
    return static_cast<std::uint8_t>(buffer_[offset - begin_]);
  }

 private:
  void fill(std::uint64_t offset);

  const ByteSource& source_;
  std::uint64_t begin_ = 0;
  std::vector<std::byte> buffer_;
};

// Goes through the fields of one message in their order:
//   while (reader.next()) switch (reader.field()) { case 1: name = reader.text(100); ... }
// A field that no accessor asks for is skipped. All functions throw DataError, with the file's name
// and the offset, for bytes that are no message and for a field of another wire type.
class ProtobufFields {
 public:
  // REQUIRES: the extent lies within the source.
  ProtobufFields(BufferedBytes& bytes, ByteExtent extent)
      : bytes_(bytes), at_(extent.offset), end_(extent.offset + extent.bytes) {}

  bool next();
  int field() const { return field_; }

  std::int64_t integer() const;               // int32, int64, uint64, bool, enum
  float real32() const;                       // float
  std::string text(std::uint64_t max_bytes);  // string or bytes
  ByteExtent extent() const;                  // of a message, of bytes, of packed numbers
  ProtobufFields message() { return {bytes_, extent()}; }
  // Appends the field's integers, packed or single, up to a total of `max_count`.
  void append_integers(std::vector<std::int64_t>& values, std::size_t max_count);

  // The same for floats of 32 bits.
  void append_reals(std::vector<float>& values, std::size_t max_count);
  // Appends all integers of packed data.
  static void append_packed(BufferedBytes& bytes, ByteExtent extent,
                            std::vector<std::int64_t>& values, std::size_t max_count);

  // Throws DataError for what is wrong at the current field.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::uint64_t varint();
  std::uint64_t fixed(int bytes);
  void expect(int wire_type, const char* expected) const;

  BufferedBytes& bytes_;
  std::uint64_t at_, end_;
  std::uint64_t begin_ = 0;  // of the current field
  int field_ = 0, wire_type_ = 0;
  std::uint64_t value_ = 0;  // of a number
  ByteExtent extent_;
};

}  // namespace io
