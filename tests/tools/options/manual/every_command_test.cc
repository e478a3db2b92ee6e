// What holds for every command: what is its own comes first in its help, lines are broken as a
// reader would, and options of other programs are answered with those that are here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>

#include "io/base/text/text_parts.h"
#include "tools/commands/command.h"
#include "tools/options/input/command_shape.h"
#include "tools/options/input/foreign_options.h"
#include "tools/options/input/help_text.h"
#include "tools/options/table/option_table.h"

namespace {

std::vector<tools::CommandShape> all_shapes() {
  std::vector<tools::CommandShape> shapes;
  for (const tools::Command& c : tools::commands()) {
    shapes.push_back(tools::shape_of(c.run));
    for (const auto& kind : c.kinds) shapes.push_back(tools::shape_of(c.run, {kind.name}));
  }
  return shapes;
}

// Whether `engine train` has it too, where other commands take it from.
bool is_of_table(const tools::OptionShape& option) {
  for (const std::string& name : option.names) {
    const tools::OptionSpec* row =
        name.starts_with("--") ? tools::find_option(name.substr(2)) : nullptr;
    if (row != nullptr && row->group == option.group) return true;
  }
  return false;
}

// Where a line of `text` begins with this option; npos: nowhere.
std::size_t place_of(const tools::OptionShape& option, const std::string& text) {
  for (const std::string& name : option.names) {
    std::string pattern = std::regex_replace(name, std::regex(R"([|.])"), R"(\$&)");
    if (!option.positional && name.starts_with("--"))
      pattern = "(-\\w, )?--(\\[no-\\])?" + name.substr(2);
    std::smatch found;
    if (std::regex_search(text, found, std::regex("\n  " + pattern + "[ \n]")))
      return static_cast<std::size_t>(found.position());
  }
  return std::string::npos;
}

TEST(EveryHelp, OwnOptionsComeFirst) {
  for (const tools::CommandShape& command : all_shapes())
    for (const char* topic : {"", "all"}) {
      SCOPED_TRACE(command.name + " --help " + topic);
      const std::string text = tools::help_text(command, topic, 80);
      std::size_t last_own = 0, first_of_table = std::string::npos;
      for (const tools::OptionShape& option : command.options) {
        const std::size_t place = place_of(option, text);
        if (is_of_table(option)) {
          first_of_table = std::min(first_of_table, place);
          continue;
        }
        ASSERT_NE(place, std::string::npos) << option.names.front();
        last_own = std::max(last_own, place);
      }
      EXPECT_LT(last_own, first_of_table);
    }
}

// Whether a line may be longer than the terminal: it has one word, or is there to be copied.
bool is_unbreakable(const std::string& line, const tools::CommandShape& command) {
  const std::size_t begin = line.find_first_not_of(' ');
  const bool copied = line.starts_with(' ') &&
                      ("\n" + command.footer + "\n").find("\n" + line + "\n") != std::string::npos;
  return copied || line.starts_with("    example:") || line.find(' ', begin) == std::string::npos;
}

void expect_wrapped(const std::string& text, const tools::CommandShape& command,
                    std::size_t width) {
  std::string last;
  bool is_prose = true;  // at the margin; below headings all is indented
  EXPECT_FALSE(text.starts_with('\n'));
  EXPECT_EQ(text.find("\n\n\n"), std::string::npos);
  for (const std::string& line : base::split_text(text, '\n')) {
    EXPECT_TRUE(line.size() <= width || is_unbreakable(line, command)) << line;
    if (is_prose && !last.empty() && last.front() != ' ' && !line.starts_with(' ')) {
      const std::string word = line.substr(0, line.find(' '));
      const bool ended = last.ends_with('.') || last.ends_with(':');
      EXPECT_TRUE(ended || (!word.empty() && last.size() + 1 + word.size() > width))
          << "broken too early: '" << last << "' '" << line << "'";
    }
    is_prose = (is_prose || line.empty()) && !line.starts_with("Usage: ");
    last = line;
  }
}

TEST(EveryHelp, IsWrappedToTheTerminal) {
  for (const tools::CommandShape& command : all_shapes())
    for (const int columns : {40, 80, 120}) {
      setenv("COLUMNS", std::to_string(columns).c_str(), 1);
      const int width = tools::help_width();
      unsetenv("COLUMNS");
      ASSERT_LE(width, columns);
      std::vector<std::string> topics{"", "all"};
      for (const tools::OptionShape& option : command.options)
        if (!option.positional) topics.push_back(option.names.back());
      for (const std::string& topic : topics) {
        SCOPED_TRACE(command.name + " --help " + topic + " at " + std::to_string(columns));
        expect_wrapped(tools::help_text(command, topic, width), command,
                       static_cast<std::size_t>(width));
      }
    }
}

TEST(EveryHelp, TypesAndDefaultsAreWrittenInOneWay) {
  for (const tools::CommandShape& command : all_shapes()) {
    for (const tools::OptionShape& option : command.options) {
      SCOPED_TRACE(command.name + " " + option.names.back());
      EXPECT_NE(option.value, "TEXT");
      EXPECT_FALSE(std::regex_search(option.help, std::regex(R"( \[[^\]]*\])"))) << option.help;
    }
    std::string heading;
    for (const std::string& line : base::split_text(tools::help_text(command, "all", 80), '\n')) {
      if (line.starts_with("  -") && !heading.empty() && heading.front() != ' ') {
        EXPECT_TRUE(std::isupper(static_cast<unsigned char>(heading.front()))) << heading;
      }
      heading = line;
    }
  }
}

std::vector<std::string> names_of(const tools::CommandShape& command) {
  std::vector<std::string> names;
  for (const tools::OptionShape& option : command.options)
    for (const std::string& name : option.names)
      if (name.starts_with("--")) names.push_back(name.substr(2));
  return names;
}

const tools::CommandShape& shape_named(const std::vector<tools::CommandShape>& shapes,
                                       const std::string& name) {
  return *std::ranges::find(shapes, name, &tools::CommandShape::name);
}

TEST(ForeignOptions, EachIsAnsweredWithOptionsThatExist) {
  const std::vector<tools::CommandShape> shapes = all_shapes();
  const std::vector<std::string> train = names_of(shape_named(shapes, "engine train")),
                                 launch = names_of(shape_named(shapes, "engine launch"));
  std::set<std::string_view> seen;
  for (const tools::ForeignOption& row : tools::foreign_options()) {
    SCOPED_TRACE(row.theirs);
    EXPECT_TRUE(seen.insert(row.theirs).second) << "twice";
    EXPECT_EQ(std::ranges::count(train, row.theirs), 0) << "is an option here";
    EXPECT_NE(row.instead.empty(), row.ours.empty() && row.launch.empty());
    EXPECT_TRUE(row.ours.empty() || row.ours.starts_with("--"));
    static const std::regex option("--([a-z][a-z0-9-]*)");
    const std::string answer = std::string(row.ours) + " " + std::string(row.instead);
    for (std::sregex_iterator it(answer.begin(), answer.end(), option), end; it != end; ++it)
      EXPECT_EQ(std::ranges::count(train, it->str(1)), 1) << it->str();
    if (!row.launch.empty()) {
      EXPECT_EQ(std::ranges::count(launch, row.launch.substr(2)), 1) << row.launch;
    }
  }
}

TEST(ForeignOptions, AreAnsweredByEveryCommand) {
  for (const tools::CommandShape& command : all_shapes())
    for (const tools::ForeignOption& row : tools::foreign_options()) {
      const std::string hint = tools::foreign_hint(row.theirs, names_of(command));
      EXPECT_TRUE(hint.starts_with(": here it is --") || hint.starts_with(": there is none; ") ||
                  hint.starts_with(": it is an option of engine launch, --"))
          << command.name << " --" << row.theirs << hint;
    }
}

}  // namespace
