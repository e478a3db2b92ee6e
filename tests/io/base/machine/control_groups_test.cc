// CPU quotas of control groups, in a folder that stands for /.
#include "io/base/machine/control_groups.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/test_support.h"

namespace {

class CpuQuota : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ / name).parent_path());
    test_support::write_text(root_ / name, text);
  }
  // "2 of FILE", the file as it would be below /.
  std::string found() const {
    const std::string root = root_.path().string();
    const auto quota = base::cpu_quota(root);
    return quota ? std::to_string(quota->cpus) + " of " + quota->file.substr(root.size()) : "none";
  }
  test_support::TemporaryDirectory root_;
};

TEST_F(CpuQuota, IsNoneWhereNoGroupHasOne) {
  EXPECT_EQ(found(), "none");
  write("proc/self/cgroup", "3:cpu,cpuacct:/a\n0::/a\n");
  EXPECT_EQ(found(), "none");
  write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), "none");
}

TEST_F(CpuQuota, APartOfACpuCountsAsOne) {
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(found(), "2 of /sys/fs/cgroup/a/cpu.max");
  write("sys/fs/cgroup/a/cpu.max", "1000 100000\n");
  EXPECT_EQ(found(), "1 of /sys/fs/cgroup/a/cpu.max");
}

TEST_F(CpuQuota, TheSmallestOfAllGroupsAboveCounts) {
  write("proc/self/cgroup", "0::/jobs/7/step\n");
  write("sys/fs/cgroup/jobs/7/cpu.max", "300000 100000\n");
  write("sys/fs/cgroup/jobs/cpu.max", "100000 50000\n");
  write("sys/fs/cgroup/jobs/7/step/cpu.max", "max 100000\n");
  EXPECT_EQ(found(), "2 of /sys/fs/cgroup/jobs/cpu.max");
}

TEST_F(CpuQuota, Version1IsReadByEitherNameOfItsMount) {
  write("proc/self/cgroup", "5:memory:/other\n3:cpu,cpuacct:/a/b\n");
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), "1 of /sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), "4 of /sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us");
}

// As in a container: the path is the host's, the mount the container's own.
TEST_F(CpuQuota, AContainersOwnRootIsItsGroup) {
  write("proc/self/cgroup", "1:cpu:/docker/4711\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), "1 of /sys/fs/cgroup/cpu/cpu.cfs_quota_us");
}

}  // namespace
