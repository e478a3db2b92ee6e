// Affinity of threads: what is bound, what inherits it, and what comes back.
#include "io/base/machine/cpu_affinity.h"

#include <gtest/gtest.h>

#include <thread>

namespace {

using base::CpuSet;

CpuSet of_new_thread() {
  CpuSet cpus;
  std::thread([&] { cpus = base::cpus_of_this_thread(); }).join();
  return cpus;
}

CpuSet first_of(const CpuSet& cpus) {
  CpuSet one;
  for (std::size_t i = 0; i < cpus.size() && one.none(); ++i) one[i] = cpus[i];
  return one;
}

TEST(CpuAffinity, NeighborsAreARange) {
  CpuSet cpus;
  EXPECT_EQ(base::cpus_text(cpus), "");
  for (const int cpu : {0, 1, 2, 5, 7, 8, 1023}) cpus.set(static_cast<std::size_t>(cpu));
  EXPECT_EQ(base::cpus_text(cpus), "0-2,5,7-8,1023");
}

TEST(CpuAffinity, AThreadIsBoundWithThoseThatItStartsAndFreedAfterwards) {
  const CpuSet all = base::cpus_of_this_thread(), one = first_of(all);
  ASSERT_TRUE(one.any());
  {
    const base::BoundThread bound(one);
    EXPECT_TRUE(bound.done());
    EXPECT_EQ(base::cpus_of_this_thread(), one);
    EXPECT_EQ(of_new_thread(), one);
    EXPECT_EQ(base::cpus_of_process(), all);
    EXPECT_LE(base::count_of_cpus(), static_cast<int>(all.count()));
    if (base::cpu_limit_text().empty()) {
      EXPECT_EQ(base::count_of_cpus(), static_cast<int>(all.count()));
    }
  }
  EXPECT_EQ(base::cpus_of_this_thread(), all);
}

TEST(CpuAffinity, HelpersOfAThreadWithACpuOfItsOwnRunOnItsWholeShare) {
  const CpuSet all = base::cpus_of_this_thread(), one = first_of(all);
  const base::BoundThread share(all);
  {
    const base::UnboundMoment moment;
    EXPECT_EQ(of_new_thread(), all);
  }
  const base::BoundThread own(one);
  {
    const base::UnboundMoment moment;
    EXPECT_EQ(of_new_thread(), all);
  }
  EXPECT_EQ(base::cpus_of_this_thread(), one);
}

TEST(CpuAffinity, AnEmptySetBindsNothing) {
  const CpuSet all = base::cpus_of_this_thread();
  const base::BoundThread bound{CpuSet{}};
  EXPECT_TRUE(bound.done());
  EXPECT_EQ(base::cpus_of_this_thread(), all);
  const base::UnboundMoment moment;
  EXPECT_EQ(base::cpus_of_this_thread(), all);
}

TEST(CpuAffinity, WhatTheKernelRefusesIsTold) {
  const CpuSet all = base::cpus_of_this_thread();
  CpuSet absent;
  absent.set(base::kMaxCpus - 1);
  if ((all & absent).any()) GTEST_SKIP() << "a machine with 1024 CPUs";
  const base::BoundThread bound(absent);
  EXPECT_FALSE(bound.done());
  EXPECT_EQ(base::cpus_of_this_thread(), all);
}

}  // namespace
