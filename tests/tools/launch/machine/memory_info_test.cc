// Memory that is left: the host's, and what control groups allow.
#include "tools/launch/machine/memory_info.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class MemoryInfo : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ / name).parent_path());
    test_support::write_text(root_ / name, text);
  }
  std::optional<std::uint64_t> available() const {
    const auto left = tools::available_memory(root_.path().string());
    return left ? std::optional(left->bytes) : std::nullopt;
  }
  test_support::TemporaryDirectory root_;
};

TEST_F(MemoryInfo, IsTheHostsWithSwapWhereNothingLimits) {
  EXPECT_EQ(available(), std::nullopt);
  write("proc/meminfo",
        "MemTotal:       8192 kB\nMemFree:  1 kB\nMemAvailable:    3072 kB\nSwapFree: 1024 kB\n");
  EXPECT_EQ(available(), 4 * kMiB);
  write("proc/self/cgroup", "0::/user.slice\n");
  write("sys/fs/cgroup/user.slice/memory.max", "max\n");
  write("sys/fs/cgroup/user.slice/memory.current", "5\n");
  EXPECT_EQ(available(), 4 * kMiB);
}

TEST_F(MemoryInfo, TheTightestControlGroupCounts) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "0::/jobs/7\n");
  write("sys/fs/cgroup/jobs/memory.max", std::to_string(40 * kMiB));
  write("sys/fs/cgroup/jobs/memory.current", std::to_string(30 * kMiB));
  write("sys/fs/cgroup/jobs/memory.stat", "anon 3\ninactive_file " + std::to_string(4 * kMiB) +
                                              "\nactive_file " + std::to_string(kMiB) + "\n");
  write("sys/fs/cgroup/jobs/7/memory.max", std::to_string(90 * kMiB));
  write("sys/fs/cgroup/jobs/7/memory.current", std::to_string(kMiB));
  EXPECT_EQ(available(), 15 * kMiB);
  write("sys/fs/cgroup/jobs/7/memory.max", std::to_string(kMiB / 2));  // lowered below its use
  EXPECT_EQ(available(), 0u);
}

TEST_F(MemoryInfo, AContainersOwnRootIsItsGroup) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", std::to_string(8 * kMiB));
  write("sys/fs/cgroup/memory.current", std::to_string(2 * kMiB));
  EXPECT_EQ(available(), 6 * kMiB);
}

TEST_F(MemoryInfo, Version1IsReadToo) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "3:cpu,cpuacct:/a\n2:memory:/a\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(9 * kMiB));
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", std::to_string(3 * kMiB));
  write("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file " + std::to_string(kMiB));
  EXPECT_EQ(available(), 7 * kMiB);
}

TEST_F(MemoryInfo, SaysWhichGroupLimits) {
  const std::string root = root_.path().string(), file = "/sys/fs/cgroup/jobs/memory.max";
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "0::/jobs/7\n");
  write("sys/fs/cgroup/jobs/7/memory.max", "max\n");
  EXPECT_FALSE(tools::available_memory(root)->by);
  EXPECT_FALSE(tools::memory_limit(100 * kMiB, root));
  write("sys/fs/cgroup/jobs/memory.max", std::to_string(60 * kMiB));
  write("sys/fs/cgroup/jobs/memory.current", std::to_string(kMiB));
  ASSERT_TRUE(tools::available_memory(root)->by);
  EXPECT_EQ(tools::available_memory(root)->by->file, root + file);
  ASSERT_TRUE(tools::memory_limit(100 * kMiB, root));
  EXPECT_EQ(tools::memory_limit(100 * kMiB, root)->bytes, 60 * kMiB);
  EXPECT_FALSE(tools::memory_limit(60 * kMiB, root)) << "all that the host has";
}

TEST_F(MemoryInfo, KillsSinceTheStartAreTold) {
  const std::string root = root_.path().string();
  write("proc/self/cgroup", "2:memory:/a\n");
  write("sys/fs/cgroup/memory/a/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  const tools::MemoryKills kills(root);
  EXPECT_EQ(kills.text(), "");
  write("sys/fs/cgroup/memory/a/memory.oom_control", "under_oom 0\noom_kill 4\n");
  EXPECT_NE(kills.text(), "");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(60 * kMiB));
  EXPECT_VALUES(kills.text(), root + "/sys/fs/cgroup/memory/a/memory.limit_in_bytes 60 MiB");
}

TEST_F(MemoryInfo, KillsOfVersion2AreTheGroupsOwn) {
  const std::string root = root_.path().string();
  write("proc/self/cgroup", "0::/jobs/7\n");
  write("sys/fs/cgroup/jobs/memory.events", "oom_kill 1\n");
  write("sys/fs/cgroup/jobs/7/memory.events", "max 4\noom 1\noom_kill 0\n");
  const tools::MemoryKills kills(root);
  write("sys/fs/cgroup/jobs/memory.events", "oom_kill 2\n");
  EXPECT_EQ(kills.text(), "") << "another job's";
  write("sys/fs/cgroup/jobs/7/memory.events", "max 9\noom 2\noom_kill 1\n");
  EXPECT_NE(kills.text(), "");
}

TEST(MemoryOfThisHost, IsKnown) {
  EXPECT_GT(tools::available_memory().value_or(tools::AvailableMemory{}).bytes, kMiB);
}

}  // namespace
