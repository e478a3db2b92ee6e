// The kernel lists an instruction set in /proc/cpuinfo only if it saves the registers for it.
#include "io/base/machine/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace base {
namespace {

std::set<std::string> flags_of_kernel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};  // other architectures list none of these
}

TEST(CpuFeatures, AreThoseThatTheKernelLists) {
  const std::set<std::string> flags = flags_of_kernel();
  const auto has = [&](const char* flag) { return flags.count(flag) > 0; };
  const bool avx512 = has("avx512f") && has("avx512vl") && has("avx512bw") && has("avx512dq");
  const CpuFeatures found = cpu_features();
  EXPECT_EQ(found.avx2, has("avx2") && has("fma"));
  EXPECT_EQ(found.avx512, avx512);
  EXPECT_EQ(found.avx512_bf16, avx512 && has("avx512_bf16"));
}

}  // namespace
}  // namespace base
