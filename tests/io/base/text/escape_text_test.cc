// Text of others made visible: what acts on a terminal, hides or is not UTF-8 becomes an escape.
#include "io/base/text/escape_text.h"

#include <gtest/gtest.h>

#include "io/base/formats/json_writer.h"

namespace {

using base::escape_text;
using base::visible_lines;

TEST(VisibleText, OrdinaryTextStays) {
  for (const char* text :
       {"", "layer3.16.bn3.running_mean", "C:\\x\\n", "Gr\u00f6\u00dfe \u65e5\u672c \U0001f600"})
    EXPECT_EQ(escape_text(text), text);
}

TEST(VisibleText, ControlCharactersAndLineEndsBecomeEscapes) {
  EXPECT_EQ(escape_text("a\x1b[31mb\x07\x7f"), "a\\x1b[31mb\\x07\\x7f");
  EXPECT_EQ(escape_text("a\nengine: error: b\r\tc"), "a\\nengine: error: b\\r\\tc");
  EXPECT_EQ(escape_text(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escape_text("\u009b2J\u2028"), "\\u009b2J\\u2028");  // CSI as one character
  EXPECT_EQ(visible_lines("a\n\tb\x1b\r\n"), "a\n\tb\\x1b\\r\n");
}

TEST(VisibleText, DirectionsAndWhatHasNoWidthBecomeEscapes) {
  EXPECT_EQ(escape_text("a\u202eb\u2066c\u200bd\ufeff\U000e0041"),
            "a\\u202eb\\u2066c\\u200bd\\ufeff\\U000e0041");
}

TEST(VisibleText, BytesThatAreNotUtf8BecomeEscapes) {
  EXPECT_EQ(escape_text("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(escape_text("\xc0\x9b|\xed\xa0\x80|\xe2\x82"), "\\xc0\\x9b|\\xed\\xa0\\x80|\\xe2\\x82");
}

TEST(VisibleText, TwiceIsAsOnce) {
  const std::string once = escape_text("\x1b\n\xff\u202e");
  EXPECT_EQ(escape_text(once), once);
}

TEST(VisibleText, JsonEscapesTheSameSoThatItReadsBack) {
  EXPECT_EQ(base::json_string("a\"\\\n\x1b\u202e\U000e0041\u00f6"),
            "\"a\\\"\\\\\\u000a\\u001b\\u202e\\udb40\\udc41\u00f6\"");
  EXPECT_EQ(base::json_string("\xff"), "\"\\ufffd\"");
}

}  // namespace
