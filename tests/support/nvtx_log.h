// Runs the program with the library that plays a tool of NVTX, and reads the ranges it was given.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace nvtx_log {

inline std::map<std::string, std::string> environment(const std::string& log,
                                                      const std::string& part = "") {
  return {
      {"NVTX_INJECTION64_PATH", FAKE_NVTX_LIBRARY}, {"FAKE_NVTX_LOG", log}, {"FAKE_NVTX", part}};
}

// Returns each thread's ranges with those around them, "step > forward > layer 'layers.0' (dense)",
// in the order of their beginnings. Every range has ended.
inline std::map<std::string, std::vector<std::string>> ranges(const std::string& log) {
  std::map<std::string, std::vector<std::string>> ranges, open;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    const std::string thread = line.substr(0, colon), what = line.substr(colon + 2);
    std::vector<std::string>& around = open[thread];
    if (what == "end") {
      EXPECT_FALSE(around.empty()) << thread << ": a range ends that has not begun";
      if (!around.empty()) around.pop_back();
      continue;
    }
    EXPECT_EQ(what.substr(0, 6), "begin ") << line;
    const std::string name = what.substr(6);
    around.push_back(around.empty() ? name : around.back() + " > " + name);
    ranges[thread].push_back(around.back());
  }
  for (const auto& [thread, around] : open) EXPECT_TRUE(around.empty()) << thread << around.back();
  return ranges;
}

}  // namespace nvtx_log
