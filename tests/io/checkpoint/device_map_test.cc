// --map-location: what it accepts, where arrays go, and what it refuses.
#include "io/checkpoint/device_map.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"

namespace {

TEST(DeviceMap, OneTargetForAll) {
  EXPECT_EQ(io::DeviceMap::parse("auto").target("cuda:3", "cuda:1"), "cuda:1");
  EXPECT_EQ(io::DeviceMap::parse("cpu").target("cuda:3", "cuda:1"), "cpu:0");
  EXPECT_EQ(io::DeviceMap::parse("cuda:2").target("cpu:0", "cpu:0"), "cuda:2");
  EXPECT_EQ(io::DeviceMap::parse("cuda").target("cpu:0", "cpu:0"), "cuda:0");
}

TEST(DeviceMap, ListsMapEachDevice) {
  const io::DeviceMap map = io::DeviceMap::parse("cuda:0=cuda:1,cuda:1=cpu,cpu=cuda:0");
  EXPECT_EQ(map.target("cuda:0", "cpu:0"), "cuda:1");
  EXPECT_EQ(map.target("cuda:1", "cpu:0"), "cpu:0");
  EXPECT_EQ(map.target("cpu:0", "cpu:0"), "cuda:0");
  EXPECT_THROW(map.target("cuda:2", "cpu:0"), io::ConfigError);
}

TEST(DeviceMap, RefusesWhatIsNoMap) {
  for (const char* spec :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "cpu:0=", "=cpu", "cuda:0=cuda:1,",
        "cuda:0=cpu=cpu", "cuda:0=cpu,cuda:0=cuda:1", "cuda:0=auto", "cuda:0=cpu,cpu", " cpu", ","})
    EXPECT_THROW(io::DeviceMap::parse(spec), io::ConfigError) << spec;
}

}  // namespace
