// Messages of Protocol Buffers: bytes as the format's documentation gives them, and read back.
#include "io/base/formats/protobuf_message.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/io/base/formats/protobuf_reader.h"

namespace {

using base::ProtobufMessage;
using protobuf_reader::Message;

std::string bytes_of(const ProtobufMessage& message) {
  std::string text;
  message.write([&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  EXPECT_EQ(text.size(), message.size());
  return text;
}

// The examples of protobuf.dev/programming-guides/encoding, and a double and several.
TEST(ProtobufMessage, HasTheBytesOfTheDocumentation) {
  using namespace std::string_literals;
  const ProtobufMessage inner = ProtobufMessage().integer(1, 150);
  EXPECT_EQ(bytes_of(inner), "\x08\x96\x01"s);
  EXPECT_EQ(inner.serialized(), bytes_of(inner));
  EXPECT_EQ(bytes_of(ProtobufMessage().text(2, "testing")), "\x12\x07testing"s);
  EXPECT_EQ(bytes_of(ProtobufMessage().message(3, inner)), "\x1A\x03\x08\x96\x01"s);
  EXPECT_EQ(bytes_of(ProtobufMessage().integer(1, -2)),
            "\x08\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"s);
  EXPECT_EQ(bytes_of(ProtobufMessage().real(1, 1.0)), "\x09\0\0\0\0\0\0\xF0\x3F"s);
  EXPECT_EQ(bytes_of(ProtobufMessage().real32(2, 1.0F)), "\x15\0\0\x80\x3F"s);
  const double two[] = {0, 1};
  EXPECT_EQ(bytes_of(ProtobufMessage().packed(16, two)),
            "\x82\x01\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xF0\x3F"s);
}

TEST(ProtobufMessage, NumbersAreReadBack) {
  const std::vector<std::int64_t> numbers{0,
                                          1,
                                          127,
                                          128,
                                          16383,
                                          16384,
                                          -1,
                                          std::numeric_limits<std::int64_t>::max(),
                                          std::numeric_limits<std::int64_t>::min()};
  ProtobufMessage message;
  for (const std::int64_t number : numbers) message.integer(16, number);  // a tag of two bytes
  message.real32(4, -0.15625F);
  const Message read(bytes_of(message));
  ASSERT_EQ(read.all(16).size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(read.all(16)[i].integer(), numbers[i]);
  EXPECT_EQ(read.one(4).real(), -0.15625F);
}

// Lengths that need more than a byte, at every depth, with bytes that are not copied between
// others.
TEST(ProtobufMessage, MessagesWithinMessagesAreReadBack) {
  const std::string large(100'000, 'x'), small = "y";
  ProtobufMessage inner;
  inner.text(1, "before");
  inner.view(2, std::as_bytes(std::span(large)));
  inner.view(2, {});
  inner.view(2, std::as_bytes(std::span(small)));
  inner.text(3, "after");
  ProtobufMessage middle;
  middle.integer(1, 7);
  middle.message(2, std::move(inner));
  middle.message(3, {});
  ProtobufMessage outer;
  outer.message(1, std::move(middle));
  outer.integer(2, 8);

  const Message read(bytes_of(outer));
  EXPECT_EQ(read.one(2).integer(), 8);
  const Message in_middle = read.message(1);
  EXPECT_EQ(in_middle.one(1).integer(), 7);
  EXPECT_EQ(in_middle.one(3).bytes, "");
  const Message in_inner = in_middle.message(2);
  EXPECT_EQ(in_inner.one(1).bytes, "before");
  ASSERT_EQ(in_inner.all(2).size(), 3U);
  EXPECT_EQ(in_inner.all(2)[0].bytes, large);
  EXPECT_EQ(in_inner.all(2)[1].bytes, "");
  EXPECT_EQ(in_inner.all(2)[2].bytes, "y");
  EXPECT_EQ(in_inner.one(3).bytes, "after");
}

TEST(ProtobufMessage, NothingIsNoBytes) { EXPECT_EQ(bytes_of(ProtobufMessage()), ""); }

}  // namespace
