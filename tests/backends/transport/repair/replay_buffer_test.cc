// The bytes kept of a stream: by reference and by copy, acknowledged, overwritten.
#include "backends/transport/repair/replay_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>

namespace backends {
namespace {

std::string kept_from(const ReplayBuffer& buffer, std::uint64_t position, std::size_t most) {
  std::string text;
  while (position < buffer.end()) {
    iovec parts[3];
    const std::size_t used = buffer.parts_from(position, most, parts);
    if (used == 0) return text + " (no parts)";
    for (std::size_t i = 0; i < used; ++i) {
      text.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
      position += parts[i].iov_len;
    }
  }
  return text;
}

TEST(ReplayBuffer, KeepsTheNewestBytesByAnyOrderOfActions) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::size_t capacity = 1 + random() % 600;
    ReplayBuffer buffer(capacity);
    std::string all;                 // every byte so far
    std::deque<std::string> memory;  // of the caller, valid until copy_unacknowledged()
    std::size_t copied_up_to = 0;
    std::uint64_t acknowledged = 0;
    for (int action = 0; action < 300; ++action) {
      switch (random() % 5) {
        default: {
          std::string& part = memory.emplace_back(random() % 200, '\0');
          for (char& c : part) c = static_cast<char>(random());
          all += part;
          const std::size_t half = part.size() / 2;  // continues in the same memory
          buffer.add(part.data(), half);
          buffer.add(part.data() + half, part.size() - half);
          if (part.size() - half <= ReplayBuffer::kHeldBytes) std::ranges::fill(part, '!');
          break;
        }
        case 3:
          acknowledged = std::max<std::uint64_t>(acknowledged, random() % (all.size() + 20));
          buffer.acknowledge(acknowledged);
          break;
        case 4:
          buffer.copy_unacknowledged();
          copied_up_to = all.size();
          for (std::string& part : memory) std::ranges::fill(part, '!');
          memory.clear();
      }
      acknowledged = std::min<std::uint64_t>(acknowledged, all.size());
      ASSERT_EQ(buffer.end(), all.size());
      const std::size_t copied =
          std::max(copied_up_to, std::min<std::size_t>(acknowledged, all.size()));
      ASSERT_LE(buffer.begin(),
                std::max<std::uint64_t>(acknowledged, copied - std::min(copied, capacity)) +
                    all.size() - copied_up_to)
          << "less is kept than there is room for";
      ASSERT_LE(buffer.begin(), all.size());
      ASSERT_GE(buffer.begin(), acknowledged);
      for (const std::uint64_t from : {buffer.begin(), (buffer.begin() + all.size()) / 2})
        ASSERT_EQ(kept_from(buffer, from, 1 + random() % 50), all.substr(from)) << seed;
    }
  }
}

TEST(ReplayBuffer, OfBytesByReferenceAllAreKept) {
  ReplayBuffer buffer(10);
  const std::string text(1000, 'a');
  buffer.add(text.data(), text.size());
  EXPECT_EQ(buffer.begin(), 0u);
  buffer.copy_unacknowledged();
  EXPECT_EQ(buffer.begin(), 990u);
}

// Other memory would not be in the cache.
TEST(ReplayBuffer, CopiesUseTheSameMemoryAfterAllWasReceived) {
  ReplayBuffer buffer(1000);
  const std::string text(100, 'a');
  const auto copies = [&](std::uint64_t from) {
    iovec parts[3];
    EXPECT_EQ(buffer.parts_from(from, 1000, parts), 1u);
    return parts[0].iov_base;
  };
  buffer.add(text.data(), text.size());
  buffer.copy_unacknowledged();
  const void* const first = copies(0);
  buffer.add(text.data(), text.size());
  buffer.acknowledge(100);
  buffer.copy_unacknowledged();
  EXPECT_EQ(copies(100), first);
  buffer.add(text.data(), text.size());
  buffer.acknowledge(150);
  buffer.copy_unacknowledged();
  EXPECT_NE(copies(200), first) << "the second half of the second part is still needed";
  EXPECT_EQ(kept_from(buffer, 150, 1000), std::string(150, 'a'));
}

}  // namespace
}  // namespace backends
