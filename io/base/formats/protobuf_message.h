// Writes one message of Protocol Buffers, with fields in the order in which they are added. It only
// writes, and supports only the part of the wire format (protobuf.dev/programming-guides/encoding)
// that ONNX and TensorBoard's event files need. The reason for not using libprotobuf:
// docs/adr/0024-onnx-files-without-libprotobuf.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace base {

class ProtobufMessage {
 public:
  using Output = std::function<void(std::span<const std::byte>)>;

  // int32, int64, uint64, bool and enum; a repeated field is added once for each value.
  ProtobufMessage& integer(int field, std::int64_t value);
  ProtobufMessage& real(int field, double value);
  ProtobufMessage& real32(int field, float value);
  ProtobufMessage& packed(int field, std::span<const double> values);
  ProtobufMessage& text(int field, std::string_view text);  // string and bytes
  // The same without a copy: `bytes` must outlive this and every message that includes it.
  ProtobufMessage& view(int field, std::span<const std::byte> bytes);
  ProtobufMessage& message(int field, ProtobufMessage message);

  std::uint64_t size() const { return size_; }  // total of all fields, in bytes
  void write(const Output& output) const;       // rethrows the output's exceptions
  std::string serialized() const;

 private:
  struct Piece {  // bytes of its own, then bytes of the caller
    std::string own;
    std::span<const std::byte> others;
  };
  void begin(int field, int wire_type);
  void varint(std::uint64_t value);
  void fixed(std::uint64_t value, int bytes);
  std::string& own();  // the text to which bytes are appended

  std::vector<Piece> pieces_;
  std::uint64_t size_ = 0;
};

}  // namespace base
