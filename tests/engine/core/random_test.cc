// The generator is the published one.
#include "engine/core/random.h"

#include <gtest/gtest.h>

namespace engine {
namespace {

// Known answers of Philox4x32-10 from the Random123 distribution's kat_vectors.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(StreamKey, DependsOnSeedAndName) {
  EXPECT_NE(stream_key(0, "fc.weight"), stream_key(0, "fc.bias"));
  EXPECT_NE(stream_key(0, "fc.weight"), stream_key(1, "fc.weight"));
  EXPECT_EQ(stream_key(7, "a"), stream_key(7, "a"));
}

}  // namespace
}  // namespace engine
