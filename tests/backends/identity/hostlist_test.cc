// Host lists against the recorded answers of scontrol, and the places where this parser is stricter
// or kinder.
#include "backends/identity/hostlist.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include "backends/backend_error.h"
#include "io/base/text/text_parts.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace {

// The hosts separated by blanks, or "!" and the message.
std::string expanded(const std::string& list) {
  try {
    return base::join_text(backends::expand_hostlist(list, "LIST"), " ");
  } catch (const backends::ConfigurationError& error) {
    return std::string("!") + error.what();
  }
}

std::string unescaped(std::string text) {
  for (std::size_t at; (at = text.find("\\n")) != std::string::npos;) text.replace(at, 2, "\n");
  return text;
}

// scontrol makes something of an open range ("1-"), of a sign, and of brackets that do not match;
// this parser refuses them.
bool scontrol_guesses(const std::string& list) {
  int depth = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    depth += list[i] == '[' ? 1 : list[i] == ']' ? -1 : 0;
    if (depth < 0 || depth > 1) return true;
    if (depth == 1 &&
        (list[i] == '+' || (list[i] == '-' && (list[i + 1] == ']' || list[i + 1] == ','))))
      return true;
  }
  return depth != 0;
}

// record_hostlists.py records them.
TEST(Hostlist, EqualsTheRecordedAnswersOfScontrol) {
  std::istringstream lines(test_support::read_text(test_support::source_directory() +
                                                   "/tests/backends/identity/hostlists.txt"));
  int cases = 0, refused = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const std::size_t tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos) << line;
    const std::string list = unescaped(line.substr(0, tab)), theirs = line.substr(tab + 1),
                      ours = expanded(list);
    if (theirs != "!" && scontrol_guesses(list)) {
      EXPECT_EQ(ours[0], '!') << line;
    } else if (theirs != "!") {
      EXPECT_EQ(ours, theirs) << line;
    } else if (ours[0] != '!') {
      // Only text behind the last group is let pass.
      const std::size_t closed = list.rfind(']');
      EXPECT_TRUE(list.find("]-ib") != std::string::npos ||
                  (closed + 1 < list.size() && list[closed + 1] != ','))
          << line << "\n"
          << ours;
    } else {
      ++refused;
    }
  }
  EXPECT_GE(cases, 300);
  EXPECT_GE(refused, 20);
}

TEST(Hostlist, TextMayFollowTheLastGroup) {
  EXPECT_EQ(expanded("n[1-2].example.org"), "n1.example.org n2.example.org");
  EXPECT_EQ(expanded("n[1-2]3,a[0-1][08-09]z"), "n13 n23 a008z a009z a108z a109z");
}

TEST(Hostlist, WhereScontrolGuessesItRefuses) {
  struct BadList {
    std::string list;
    std::size_t position;  // 0: none
    std::string fault;
  };
  const BadList cases[] = {
      {"", 0, "no host"},
      {" , ,", 1, "no host"},
      {"n[1-2", 2, "bracket closed"},
      {"n[1,", 2, "bracket closed"},
      {"a,n[", 4, "bracket closed"},
      {"n[1]x[1", 6, "bracket closed"},
      {"node]", 5, "bracket opened"},
      {"]", 1, "bracket opened"},
      {"n[[1]]", 3, "number missing"},
      {"n[ 1-2]", 3, "number missing"},
      {"n[1 -2]", 4, "range A-B"},
      {"n[1-3:2]", 6, "range A-B"},
      {"n[]", 3, "number missing"},
      {"n[1,]", 5, "number missing"},
      {"n[2-1]", 3, "range backwards"},
      {"n[1-2-3]", 6, "range A-B"},
      {"good,n[1-x]", 10, "number missing"},
      {"a;rm", 2, "character"},
      {"$(x)", 1, "character"},
      {"n\xc3\xa9", 2, "character"},
      {"n[99999999999999999999]", 3, "18 digits"},
      {"n[0000000000000000001]", 3, "18 digits"},
  };
  for (const auto& [list, position, fault] : cases) {
    std::string values = "LIST \"" + list + "\": ";
    if (position > 0)
      values += std::to_string(position) + " \"" + list.substr(position - 1) + "\": ";
    const std::string text = expanded(list.c_str());
    EXPECT_EQ(text[0], '!') << list;
    EXPECT_VALUES(text, values + fault + " n[01-03,7],login");
  }
}

TEST(Hostlist, BombsAreRefusedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  std::string many = "n[1-65536]";
  EXPECT_EQ(backends::expand_hostlist(many, "LIST").size(), 65536u);
  for (const char* list :
       {"n[1-65537]", "n[0-999999]", "n[1-1000]x[1-1000]", "n[0-999999999999999999]",
        "n[1-65536],m", "a[1-9][1-9][1-9][1-9][1-9][1-9]", "n[0-65535,0-65535]",
        "n[0-999999999999999999,0-999999999999999999]"}) {
    EXPECT_NE(expanded(list).find("more than 65536 hosts"), std::string::npos) << list;
  }
  EXPECT_NE(expanded(std::string(254, 'a')).find("more than 253 characters"), std::string::npos);
  EXPECT_NE(expanded("x," + std::string(240, 'a') + "[000000000000000001]").find("position 3"),
            std::string::npos);
  EXPECT_EQ(expanded(std::string(253, 'a')).size(), 253u);
  EXPECT_FALSE(test_support::is_past(start, std::chrono::seconds(5)));
}

}  // namespace
