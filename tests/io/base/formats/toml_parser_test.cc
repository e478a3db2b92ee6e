// Letters that the library takes for impossible, for sanitizers to watch.
#include "io/base/formats/toml_parser.h"

#include <gtest/gtest.h>

#include <string>

namespace {

const std::string kLetter = "\xc5\xa2";  // U+0162

TEST(TomlParser, ReadsLettersInStringsAndComments) {
  const toml::table table = toml::parse("# " + kLetter + "\na = '" + kLetter +
                                        "'\nb = \"\"\"\\\n  " + kLetter + "\"\"\"\n");
  EXPECT_EQ(table["a"].value<std::string>(), kLetter);
  EXPECT_EQ(table["b"].value<std::string>(), kLetter);
}

TEST(TomlParser, RejectsLettersElsewhereWithTheirLine) {
  for (const std::string& line :
       {"b = 1" + kLetter, "b = 4*\"*" + kLetter, "b=7{={a2=!{'" + kLetter + "'"}) {
    try {
      static_cast<void>(toml::parse("a = ''\n\n" + line + "\n"));
      ADD_FAILURE() << line;
    } catch (const toml::parse_error& error) {
      EXPECT_EQ(error.source().begin.line, 3u) << line;
    }
  }
}

}  // namespace
