// The hosts of ranks, also those that have unequally many.
#include "backends/identity/host_layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

std::vector<backends::PeerInfo> ranks_on(const std::vector<std::string>& hosts) {
  std::vector<backends::PeerInfo> peers;
  for (const std::string& host : hosts)
    peers.push_back({static_cast<int>(peers.size()), host, 1, host});
  return peers;
}

TEST(HostLayout, KnowsRailsAndUnevenHosts) {
  const backends::HostLayout even = backends::host_layout(2, ranks_on({"a", "b", "a", "b"}));
  EXPECT_EQ(even.local_ranks(), (std::vector<int>{0, 2}));
  EXPECT_EQ(even.local_count(), 2);
  EXPECT_EQ(even.place, 1);
  EXPECT_TRUE(even.even);
  EXPECT_EQ(even.rail(1), (std::vector<int>{2, 3}));
  const backends::HostLayout uneven = backends::host_layout(2, ranks_on({"a", "a", "b"}));
  EXPECT_EQ(uneven.host, 1);
  EXPECT_FALSE(uneven.even);
}

}  // namespace
