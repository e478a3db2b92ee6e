// Every kept input through its target, with any compiler: what fuzzing has once found stays found.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/fuzz/targets.h"
#include "tests/support/test_support.h"

namespace {

namespace fs = std::filesystem;
using fuzz::Input;

class FuzzCorpus : public testing::TestWithParam<fuzz::Target> {};

TEST_P(FuzzCorpus, EveryInputIsReadOrRefused) {
  const fs::path folder =
      fs::path(test_support::source_directory()) / "tests/fuzz/corpus" / GetParam().name;
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string text = test_support::read_text(entry.path());
    const auto bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    EXPECT_NO_THROW(GetParam().run({bytes, text.size()})) << entry.path();
    // And damaged: every prefix of a short one, and each byte changed.
    const std::size_t step = text.size() / 500 + 1;
    for (std::size_t i = 0; i < text.size(); i += step) {
      EXPECT_NO_THROW(GetParam().run({bytes, i})) << entry.path() << " cut at " << i;
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ 0x41);
      EXPECT_NO_THROW(
          GetParam().run({reinterpret_cast<const std::uint8_t*>(changed.data()), changed.size()}))
          << entry.path() << " changed at " << i;
    }
    ++count;
  }
  EXPECT_GT(count, 0u) << folder;
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(fuzz::kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
