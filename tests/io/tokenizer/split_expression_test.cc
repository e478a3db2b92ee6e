// Which expressions of tokenizers are translated, and the pieces that they make. The expected
// pieces are those of the library `tokenizers` 0.23.
#include "io/tokenizer/split_expression.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "io/tokenizer/text_split.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

std::string translated(const std::string& expression) {
  return pcre2_expression("t.json", expression, true);
}

std::string refusal_of(const std::string& expression) {
  return test_support::error_of<DataError>([&] { translated(expression); });
}

TEST(SplitExpression, ScriptsAreThoseOfPcre2sVersion) {
  EXPECT_EQ(translated("\\p{Han}\\P{Greek}\\p{^Lu}"), "[\\p{sc:Han}][\\P{sc:Greek}][\\P{Lu}]");
  EXPECT_EQ(pcre2_expression("t.json", "\\p{Han}", false), "[\\p{Han}]");
}

TEST(SplitExpression, RejectsByNameWhatPcre2MatchesDifferently) {
  for (const char* expression :
       {"\\w+", "\\b", "\\B", "\\W", "[\\w-]", "[[:alpha:]]", "[[:punct:]]", "(?x", "(?s", "\\K",
        "\\X", "\\1", "\\g", "\\Q", "\\xE3", "\\pL", "(*"}) {
    EXPECT_VALUES(refusal_of(expression),
                  std::string("t.json: '") + expression + "' PCRE2 tokenizers");
  }
  const std::pair<std::string, std::string> cases[] = {{"a\\b", "\\b,"},
                                                       {"[[:punct:]]", "[:punct:],"},
                                                       {"a**", "quantifier quantifier"},
                                                       {"(?i:gro\xC3\x9F", "ASCII case"},
                                                       {"(?i:Fit", "'fi' case"},
                                                       {"(?i:\\p{Lu})", "\\p{...} case"},
                                                       {"(?i:[a[b]])", "nested set case"},
                                                       {"[a[^ -\\x{ff}]]", "U+0080 nested set"},
                                                       {"[a&&]", "empty &&"}};
  for (const auto& [expression, values] : cases)
    EXPECT_VALUES(refusal_of(expression), "'" + expression + "' " + values);
}

TEST(SplitExpression, NamesThePlaceOfAnError) {
  EXPECT_VALUES(refusal_of("a(b"), "3: missing ')'");
  EXPECT_VALUES(refusal_of("a)b"), "1: unexpected ')'");
  EXPECT_VALUES(refusal_of("[a"), "2: missing ']'");
  EXPECT_VALUES(refusal_of("|+"), "character 1 quantifier");
  EXPECT_CONTAINS(refusal_of("a\\"), "expected a character");
  EXPECT_CONTAINS(refusal_of("\r\n("), "expression '\\r\\n('");
  EXPECT_CONTAINS(refusal_of(std::string(200, '(')), "nested more than 100 deep");
  EXPECT_CONTAINS(refusal_of(std::string(200, '[')), "nested more than 100 deep");
}

#ifdef HAS_PCRE2
// Returns the pieces of a text, with blanks between them.
std::string pieces(const std::string& expression, const std::string& text) {
  Pieces found;
  TextSplit("t.json", expression, TextSplit::Gaps::kKept).split(text, found);
  std::string all;
  for (const std::string_view piece : found) all += (all.empty() ? "" : "|") + std::string(piece);
  return all;
}

TEST(SplitExpression, SetsNestAndIntersect) {
  EXPECT_EQ(pieces("[a[bc]]+", "abcdcba"), "abc|d|cba");
  EXPECT_EQ(pieces("[\\p{L}&&[^aeiou]]+", "structure 1"), "str|u|ct|u|r|e 1");
  EXPECT_EQ(pieces("[^\\p{L}&&[^x]]+", "ab x1 y"), "ab| x1 |y");
  EXPECT_EQ(pieces("[a-w&&[^c-g]z]+", "abcdhz"), "ab|cd|h|z");
  EXPECT_EQ(pieces("[^(\\s|[.,!]\xE3\x80\x82)]+", "a b. c|d"), "a| |b|. |c|||d");
  EXPECT_EQ(pieces("[\\S&&[^a]]+", "ab c"), "a|b| |c");
  EXPECT_EQ(pieces("[]a]+", "]a-"), "]a|-");
  EXPECT_EQ(pieces("[a\\-\\]]+", "-a]b"), "-a]|b");
}

TEST(SplitExpression, HanIsTheScriptAlone) {
  EXPECT_EQ(pieces("\\p{Han}+", "\xE5\xA5\xBD\xE3\x80\x82\xE6\x88\x91"),
            "\xE5\xA5\xBD|\xE3\x80\x82|\xE6\x88\x91");
}

TEST(SplitExpression, AnchorsHoldAtEveryLine) {
  EXPECT_EQ(pieces("^\\p{L}+", "ab cd\nef gh\n"), "ab| cd\n|ef| gh\n");
  EXPECT_EQ(pieces("\\p{L}+$", "ab cd\nef gh"), "ab |cd|\nef |gh");
  EXPECT_EQ(pieces("\\A\\p{L}|\\p{L}\\z", "ab\ncd"), "a|b\nc|d");
}

TEST(SplitExpression, OptionsAreThoseOfOniguruma) {
  EXPECT_EQ(pieces("(?m:.+)", "ab\ncd"), "ab\ncd");
  EXPECT_EQ(pieces(".+", "ab\ncd"), "ab|\n|cd");
  EXPECT_EQ(pieces("a(?i)b|c", "aBaC"), "aB|aC") << "c is an alternative of b";
  EXPECT_EQ(pieces("(?i:'s|'ll)", "a'Sb'LL"), "a|'S|b|'LL");
}

TEST(SplitExpression, IntervalsAreThoseOfOniguruma) {
  EXPECT_EQ(pieces("a{,2}", "aaab"), "aa|a|b");
  EXPECT_EQ(pieces("a{1,2}+a", "aaaa b"), "aaaa| b") << "not possessive";
  EXPECT_EQ(pieces("a{2}?", "aaaa"), "aa|aa") << "not reluctant";
  EXPECT_EQ(pieces("a{1,2}?", "aaa"), "a|a|a");
  EXPECT_EQ(pieces("a++a|b", "aab"), "aa|b");
  EXPECT_EQ(pieces("{x}", "a{x}"), "a|{x}");
}

TEST(SplitExpression, EscapesAreThoseOfOniguruma) {
  EXPECT_EQ(pieces("\\h+", "xBEEF \t"), "x|BEEF| \t");
  EXPECT_EQ(pieces("[^\\h]+", "xyBEEF"), "xy|BEEF");
  EXPECT_EQ(pieces("\\v", "a\n\vb"), "a\n|\v|b");
  EXPECT_EQ(pieces("\\u00e9|\\x{e9}{2}", "a\xC3\xA9"), "a|\xC3\xA9");
  EXPECT_EQ(pieces("\\N+|\\O", "ab\n"), "ab|\n");
  EXPECT_EQ(pieces("\\R", "a\r\nb\xC2\x85"), "a|\r\n|b|\xC2\x85");
}

TEST(SplitExpression, UnknownScriptsAreErrors) {
  EXPECT_VALUES(test_support::error_of<DataError>([] { pieces("\\p{Alpha}", "a"); }),
                "'\\p{Alpha}' pre-tokenizer");
}
#endif

}  // namespace
}  // namespace io
