// Which variables of the environment are known.
#include "tools/options/input/known_variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using Lines = std::vector<std::string>;

Lines unknown(const Lines& names) { return tools::unknown_variables(names, Lines{"max-restarts"}); }

TEST(KnownVariables, OptionsAndTheProgramsOwnNamesAreKnown) {
  EXPECT_EQ(unknown({"ENGINE_LR", "ENGINE_SYNC_EVERY", "ENGINE_MAX_RESTARTS", "ENGINE_TEST_DATA",
                     "ENGINE_SECRET", "ENGINE_ISA", "ENGINE_RESTART_COUNT", "PATH", "MY_ENGINE_X"}),
            Lines());
}

TEST(KnownVariables, AnyOtherIsNamedWithTheNearest) {
  EXPECT_LINES(unknown({"ENGINE_BACTH_SIZE"}), "ENGINE_BACTH_SIZE 'ENGINE_BATCH_SIZE'?");
  EXPECT_EQ(unknown({"ENGINE_ZZZZZZZZ", "ENGINE_"}).size(), 2u);
  EXPECT_EQ(unknown({"ENGINE_ZZZZZZZZ"})[0].find("did you mean"), std::string::npos);
}

TEST(KnownVariables, TheEnvironmentIsRead) {
  setenv("ENGINE_TEST_KNOWN", "a=b", 1);
  const Lines names = tools::environment_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "ENGINE_TEST_KNOWN"), 1);
  unsetenv("ENGINE_TEST_KNOWN");
}

// A new variable belongs into the table.
TEST(KnownVariables, EveryNameThatTheSourcesReadIsInTheTable) {
  const std::regex reading("(getenv|variable|is_set)\\((environment, )?\"(ENGINE_[A-Z_]+)\"");
  std::set<std::string> found;
  for (const char* room : {"tools", "models", "engine", "backends", "io"}) {
    const std::string folder = test_support::source_directory() + "/" + room;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".cc" && ending != ".h" && ending != ".cu") continue;
      const std::string text = test_support::read_text(entry.path().string());
      for (std::sregex_iterator at(text.begin(), text.end(), reading), end; at != end; ++at)
        found.insert((*at)[3]);
    }
  }
  EXPECT_TRUE(found.contains("ENGINE_ISA")) << "nothing was found";
  EXPECT_EQ(unknown(Lines(found.begin(), found.end())), Lines());
}

}  // namespace
