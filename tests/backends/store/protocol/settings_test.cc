// Settings that all ranks must share: their frame, their digest, and what is said of a difference.
#include "backends/store/protocol/settings.h"

#include <gtest/gtest.h>

#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/wire.h"

namespace backends {
namespace {

TEST(Settings, PassThroughAFrame) {
  const Settings settings{{"--lr", "0.1"}, {"--init-from", ""}, {"", "x\ny"}};
  FrameParser parser;
  const std::string frame = settings_frame(settings);
  parser.append(frame.data(), frame.size());
  const std::optional<Frame> found = parser.next(kSettingsBytes);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->type, FrameType::kSettings);
  EXPECT_EQ(read_settings(found->payload), settings);
  EXPECT_THROW(read_settings(found->payload.substr(0, found->payload.size() - 1)), MalformedFrame);
  EXPECT_THROW(read_settings(std::string("\xff\xff\xff\xff", 4)), MalformedFrame);
}

TEST(Settings, TheDigestTellsNamesFromValues) {
  EXPECT_EQ(settings_digest({{"a", "b"}}), settings_digest({{"a", "b"}}));
  EXPECT_EQ(settings_digest({}).size(), 32u);
  EXPECT_NE(settings_digest({{"a", "bc"}}), settings_digest({{"ab", "c"}}));
  EXPECT_NE(settings_digest({{"a", "b"}}), settings_digest({{"a", "b"}, {"", ""}}));
}

TEST(Settings, ADifferenceHasNamesAndBothValues) {
  const Settings ours{{"--batch-size", "128"}, {"--lr", "0.1"}, {"--limit", "0"}};
  EXPECT_EQ(
      settings_difference(ours, "rank 0", {{"--batch-size", "64"}, {"--lr", "0.1"}}, "rank 3"),
      "--batch-size: rank 0 has 128, rank 3 has 64; --limit: 0 and no value");
  EXPECT_EQ(settings_difference({}, "rank 0", {{"--save-dir", "a value"}}, "rank 1"),
            "--save-dir: rank 0 has no value, rank 1 has a value");
}

TEST(Settings, ManyAndLongOnesAreCutToOneLine) {
  Settings ours, theirs;
  for (int i = 0; i < 9; ++i) {
    ours.emplace_back("--x" + std::to_string(i), std::string(500, 'a') + "\n");
    theirs.emplace_back("--x" + std::to_string(i), "\n");
  }
  const std::string text = settings_difference(ours, "rank 0", theirs, "rank 1");
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_NE(text.find("; and 5 more"), std::string::npos) << text;
  EXPECT_LT(text.size(), 1000u);
}

// Before it has proved the secret, anybody may answer as rank 0.
TEST(Refusal, WhatAServerSaysIsOneVisibleLine) {
  try {
    throw_refusal(RefusalKind::kPeer, "refused by rank 0: \x1b[2J\nengine: all is well");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "refused by rank 0: \\x1b[2J\\nengine: all is well");
  }
}

}  // namespace
}  // namespace backends
