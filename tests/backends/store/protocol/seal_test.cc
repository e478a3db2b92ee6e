// Seals: what a process that carries the bytes of a store connection can do to them.
#include "backends/store/protocol/seal.h"

#include <gtest/gtest.h>

#include <vector>

namespace backends {
namespace {

class SealTest : public testing::Test {
 protected:
  static constexpr const char* kHello = "hello";
  const Secret secret_{std::string(32, 's'), "test"};
  Seals sender_ = make_seals(secret_, kHello, "nonce"),
        receiver_ = make_seals(secret_, kHello, "nonce");

  // As it arrives.
  static Frame received(const std::string& bytes) {
    FrameParser parser;
    parser.append(bytes.data(), bytes.size());
    std::optional<Frame> frame = parser.next(kFrameBytes + kSealBytes);
    EXPECT_TRUE(frame);
    return frame.value_or(Frame{});
  }
  Frame sealed(const std::string& text) {
    return received(sender_.to_server.close(FrameWriter(FrameType::kSet).text(text).finish()));
  }
  bool opens(Frame frame) {
    try {
      receiver_.to_server.open(frame);
      return true;
    } catch (const MalformedFrame&) {
      return false;
    }
  }
};

TEST_F(SealTest, FramesPassInOrder) {
  for (const std::string text : {"", "address of rank 1", "x"}) {
    Frame frame = sealed(text);
    receiver_.to_server.open(frame);
    EXPECT_EQ(frame.type, FrameType::kSet);
    EXPECT_EQ(FrameReader(frame.payload).text(), text);
  }
}

TEST_F(SealTest, EveryChangedBitIsNoticed) {
  const Frame sound = sealed("127.0.0.1:2000");
  for (std::size_t at = 0; at < sound.payload.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Frame changed = sound;
      changed.payload[at] = static_cast<char>(changed.payload[at] ^ (1 << bit));
      receiver_ = make_seals(secret_, kHello, "nonce");
      EXPECT_FALSE(opens(changed)) << "byte " << at << ", bit " << bit;
    }
  }
  Frame other_type = sound;
  other_type.type = FrameType::kRemove;
  receiver_ = make_seals(secret_, kHello, "nonce");
  EXPECT_FALSE(opens(other_type));
  for (std::size_t length = 0; length < sound.payload.size(); ++length) {
    receiver_ = make_seals(secret_, kHello, "nonce");
    EXPECT_FALSE(opens({sound.type, sound.payload.substr(0, length)})) << length;
  }
  receiver_ = make_seals(secret_, kHello, "nonce");
  EXPECT_TRUE(opens(sound));
}

TEST_F(SealTest, ARepeatedFrameIsNoticed) {
  const Frame frame = sealed("x");
  EXPECT_TRUE(opens(frame));
  EXPECT_FALSE(opens(frame));
}

TEST_F(SealTest, AMissingFrameIsNoticed) {
  (void)sealed("first");
  EXPECT_FALSE(opens(sealed("second")));
}

TEST_F(SealTest, AFrameOfTheOtherDirectionOrOfAnotherConnectionIsNoticed) {
  Frame frame = sealed("x");
  EXPECT_THROW(receiver_.to_client.open(frame), MalformedFrame);
  for (Seals other :
       {make_seals(secret_, kHello, "another nonce"), make_seals(secret_, "another hello", "nonce"),
        make_seals({std::string(32, 't'), "test"}, kHello, "nonce")}) {
    Frame again = frame;
    EXPECT_THROW(other.to_server.open(again), MalformedFrame);
  }
}

}  // namespace
}  // namespace backends
