// Which ids a text gets, and which tokenizers are refused. tokenize_test.cc compares the ids of
// whole tokenizers with those of the library `tokenizers`.
#include "io/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "tests/io/tokenizer/tokenizer_text.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

using tokenizer_text::Parts;
using tokenizer_text::tokenizer_json;
using Ids = std::vector<std::int32_t>;

Tokenizer made(const Parts& parts) { return Tokenizer::parse(tokenizer_json(parts), "t.json"); }

Ids encoded(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  TokenEncoder(tokenizer).encode(text, ids);
  return ids;
}
Ids encoded(const Parts& parts, const std::string& text) { return encoded(made(parts), text); }

std::string refusal(const Parts& parts) {
  return test_support::error_of<DataError>([&] { made(parts); });
}

// Without a regular expression, so that this runs in a program without PCRE2, too.
Parts plain() {
  return {.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"};
}

TEST(Tokenizer, MergesTheLowestRankFirst) {
  EXPECT_EQ(encoded(plain(), "hello"), (Ids{259}));
  EXPECT_EQ(encoded(plain(), "hellor"), (Ids{259, 'r'})) << "hell and o come before o and r";
  EXPECT_EQ(encoded(plain(), "helor"), (Ids{256, 'l', 261}));
  EXPECT_EQ(encoded(plain(), "lll"), (Ids{257, 'l'})) << "the leftmost of equals";
  EXPECT_EQ(encoded(plain(), ""), Ids{});
}

TEST(Tokenizer, FindsAddedTokensTheLongestFirst) {
  Parts parts = plain();
  parts.added += R"(,{"id":263,"content":"<|end|>!","special":true,"normalized":false})";
  EXPECT_EQ(encoded(parts, "he<|end|>ll<|end|>!<|en"),
            (Ids{256, 262, 257, 263, '<', '|', 'e', 'n'}));
  EXPECT_EQ(made(parts).id_of("<|end|>!"), 263);
  EXPECT_EQ(made(parts).id_of("hell"), 258);
  EXPECT_EQ(made(parts).id_of("hellx"), std::nullopt);
  EXPECT_EQ(made(parts).size(), 264);
}

TEST(Tokenizer, WritesOneReplacementForEachPartOfADamagedCharacter) {
  const std::string mark = "\xEF\xBF\xBD";
  const Tokenizer tokenizer = made(plain());
  for (const auto& [damaged, repaired] : std::vector<std::pair<std::string, std::string>>{
           {"a\xFF"
            "b",
            "a" + mark + "b"},
           {"\xE2\x82", mark},  // a character that is cut
           {"\xE2\x82"
            "a",
            mark + "a"},
           {"\xC0\x80", mark + mark},             // overlong
           {"\xED\xA0\x80", mark + mark + mark},  // a surrogate
           {"\xF0\x9F\x98\x80\x80", "\xF0\x9F\x98\x80" + mark}})
    EXPECT_EQ(encoded(tokenizer, damaged), encoded(tokenizer, repaired));
}

TEST(Tokenizer, DecodesWhatItHasEncoded) {
  const Tokenizer tokenizer = made(plain());
  const std::string text = "hello w\xC3\xB6rld <|end|>\n\tor \xF0\x9F\x98\x80";
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text)), text);
  EXPECT_VALUES(test_support::error_of<DataError>([&] {
                  tokenizer.decode(Ids{3, 263});
                }),
                "token 263 0..262");
}

// Pieces above and below the length from which a heap finds the merges.
TEST(Tokenizer, DecodesIdByIdWhatIsWhole) {
  const Tokenizer tokenizer = made(plain());
  TokenDecoder decoder(tokenizer);
  const auto add = [&](unsigned byte) { return decoder.add(static_cast<std::int32_t>(byte)); };
  EXPECT_EQ(decoder.add(259), "hello");
  // A character of three bytes, then one of four that breaks off.
  EXPECT_EQ(add(0xE2), "");
  EXPECT_EQ(add(0x82), "");
  EXPECT_EQ(add(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(add(0xF0), "");
  EXPECT_EQ(add(0x9F), "");
  EXPECT_EQ(add('x'), "\xEF\xBF\xBDx");
  EXPECT_EQ(add(0xFF), "\xEF\xBF\xBD") << "never part of a character";
  EXPECT_EQ(add(0xC3), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_THROW(decoder.add(264), DataError);
}

TEST(Tokenizer, KnowsTheEndOfAText) {
  EXPECT_EQ(made(plain()).end_of_text(), std::nullopt);
  Parts parts = plain();
  parts.added = R"({"id":262,"content":"</s>"},{"id":263,"content":"<|end_of_text|>"})";
  EXPECT_EQ(made(parts).end_of_text(), 263);
}

TEST(Tokenizer, LongPiecesGetTheMergesOfShortOnes) {
  Parts parts = plain();
  parts.merges = {{"a", "b"}, {"b", "a"}, {"ab", "ab"}, {"a", "a"}, {"ba", "ba"}, {"aa", "b"}};
  const Tokenizer tokenizer = made(parts);
  SplitMix numbers(1, 0);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::uint32_t i = 30 + numbers.below(30); i > 0; --i)
      text += static_cast<char>('a' + numbers.below(2));
    // A c is in no merge.
    const Ids one = encoded(tokenizer, text + "c"), two = encoded(tokenizer, text + "c" + text);
    Ids twice = one;
    twice.insert(twice.end(), one.begin(), one.end() - 1);
    EXPECT_EQ(two, twice) << text;
  }
}

TEST(Tokenizer, AWholePieceMayBeATokenWithoutItsMerges) {
  Parts parts = plain();
  parts.merges = {{"b", "c"}, {"a", "b"}, {"ab", "c"}};
  parts.added = "";
  EXPECT_EQ(encoded(parts, "abc"), (Ids{'a', 256}));
  parts.model = R"(,"ignore_merges":true)";
  EXPECT_EQ(encoded(parts, "abc"), (Ids{258}));
}

// The library's later steps see the characters that stand for bytes: among those of letters are
// digits.
TEST(Tokenizer, AByteLevelIsTheLastStep) {
  constexpr const char* kBytes =
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  for (const std::string step :
       {R"({"type":"Digits","individual_digits":true})", kBytes,
        R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated"})"}) {
    const std::string type = step.substr(9, step.find('"', 9) - 9);
    EXPECT_VALUES(refusal({.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)" +
                                            std::string(kBytes) + "," + step + "]}"}),
                  "pre_tokenizer '" + type + "' after 'ByteLevel'");
  }
}

// GPT-2's own file is older than the type.
TEST(Tokenizer, AModelWithoutTypeHasMerges) {
  std::string text = tokenizer_json(plain());
  const std::string type = R"("type":"BPE",)";
  text.erase(text.find(type), type.size());
  EXPECT_EQ(encoded(Tokenizer::parse(text, "t.json"), "hello"), (Ids{259}));
}

TEST(Tokenizer, ADropoutOfZeroIsNone) {
  Parts parts = plain();
  parts.model = R"(,"dropout":0.0)";
  EXPECT_EQ(encoded(parts, "hello"), (Ids{259}));
  parts.model = R"(,"dropout":0.1)";
  EXPECT_CONTAINS(refusal(parts), "model.dropout is '0.1'");
}

TEST(Tokenizer, OtherKindsAreRefusedByName) {
  EXPECT_CONTAINS(test_support::error_of<DataError>([] { Tokenizer::parse("[]", "t.json"); }),
                  "t.json: not a JSON object");
  const auto with = [](auto change) {
    Parts parts = plain();
    change(parts);
    return refusal(parts);
  };
  EXPECT_CONTAINS(with([](Parts& p) { p.model = R"(,"byte_fallback":true)"; }),
                  "model.byte_fallback is 'true'");
  EXPECT_CONTAINS(with([](Parts& p) { p.normalizer = R"({"type":"Lowercase"})"; }),
                  "normalizer.type is 'Lowercase'; expected NFC or none");
  EXPECT_CONTAINS(with([](Parts& p) { p.pre_tokenizer = R"({"type":"Metaspace"})"; }),
                  "pre_tokenizer.type is 'Metaspace'");
  EXPECT_CONTAINS(with([](Parts& p) { p.pre_tokenizer = "null"; }), "pre_tokenizer is 'none'");
  EXPECT_CONTAINS(
      with([](Parts& p) { p.added = R"({"id":262,"content":"<mask>","lstrip":true})"; }),
      "added token '<mask>': lstrip is 'true'; expected false");
  EXPECT_CONTAINS(with([](Parts& p) {
                    p.merges = {{"h", "e"}, {"x", "he"}, {"q", "xhey"}};
                  }),
                  "the vocabulary lacks 'xhey', which a merge needs");
  EXPECT_CONTAINS(with([](Parts& p) { p.added = R"({"id":-1,"content":"x"})"; }),
                  "the id of token 'x' is '-1'; expected 0..");
  EXPECT_VALUES(with([](Parts& p) { p.added = R"({"id":7,"content":"he"})"; }), "'he' '7' 256");
}

// The characters that stand for bytes may themselves be added, and so may what merges make.
TEST(Tokenizer, AddedTokensOfTheVocabularyKeepTheirBytes) {
  Parts parts = plain();
  parts.added =
      "{\"id\":163,\"content\":\"\xC2\xA3\"},{\"id\":233,\"content\":\"\xC3\xA9\"},"
      "{\"id\":260,\"content\":\"\xC4\xA0w\"}";  // G with a dot stands for a blank
  const Tokenizer tokenizer = made(parts);
  EXPECT_EQ(encoded(tokenizer, "\xC3\xA9\xC2\xA3"), (Ids{233, 163}));
  EXPECT_EQ(encoded(tokenizer, "caf\xC3\xA9"), (Ids{'c', 'a', 'f', 233}));
  EXPECT_EQ(encoded(tokenizer, "\xC3\xA1"), (Ids{195, 161}));
  EXPECT_EQ(encoded(tokenizer, " w\xC4\xA0w"), (Ids{260, 260}));
  const Ids ids = encoded(tokenizer, "\xE9\xBE\x8D");
  EXPECT_EQ(ids, (Ids{233, 190, 141})) << "a character that begins with the byte 233";
  EXPECT_EQ(tokenizer.decode(ids), "\xE9\xBE\x8D");
  EXPECT_EQ(tokenizer.decode(Ids{260}), " w");
}

// The library `tokenizers` does not use the ids of its file for tokens that the vocabulary lacks.
TEST(Tokenizer, AddedTokensHaveTheNextFreeIds) {
  const auto with = [](const std::string& added) {
    Parts parts = plain();
    parts.added = added;
    return refusal(parts);
  };
  EXPECT_VALUES(with(R"({"id":282,"content":"<|user|>"})"), "token '<|user|>' '282'; 262");
  EXPECT_CONTAINS(with(R"({"id":263,"content":"a1"},{"id":262,"content":"b1"})"),
                  "'a1' is '263'; expected 262");
  EXPECT_CONTAINS(with(R"({"id":262,"content":"a1"},{"id":263,"content":"a1"})"),
                  "'a1' is '263'; expected 262");
  Parts parts = plain();
  parts.added = R"({"id":262,"content":"a1"},{"id":256,"content":"he"},{"id":263,"content":"b1"})";
  EXPECT_EQ(encoded(parts, "a1b1"), (Ids{262, 263}));
}

TEST(Tokenizer, StatesTheTokensAroundAText) {
  const auto frame = [](const std::string& processor) {
    Parts parts = plain();
    parts.post_processor = processor;
    return made(parts).frame();
  };
  EXPECT_EQ(made(plain()).frame().before, Ids{});
  EXPECT_EQ(frame(R"({"type":"ByteLevel"})").before, Ids{});
  const std::string begin =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|end|>","type_id":0}},)"
      R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"he","type_id":0}}],)"
      R"("special_tokens":{"<|end|>":{"id":"<|end|>","ids":[262]},)"
      R"("he":{"id":"he","ids":[256,7]}}})";
  EXPECT_EQ(frame(begin).before, (Ids{262}));
  EXPECT_EQ(frame(begin).after, (Ids{256, 7}));
  const std::string roberta = R"({"type":"RobertaProcessing","sep":["b",3],"cls":["a",2]})";
  const TextFrame both = frame(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + begin +
                               "," + roberta + "]}");
  EXPECT_EQ(both.before, (Ids{2, 262})) << "each processor adds tokens around the ones before";
  EXPECT_EQ(both.after, (Ids{256, 7, 3}));
  const auto fault = [&](const std::string& processor) {
    return test_support::error_of<DataError>([&] { frame(processor); });
  };
  EXPECT_CONTAINS(fault(R"({"type":"Other"})"),
                  "t.json: post_processor.type is 'Other'; expected ");
  EXPECT_CONTAINS(fault(R"({"type":"RobertaProcessing","sep":["b",3]})"),
                  "post_processor lacks 'cls'");
  EXPECT_CONTAINS(fault(R"({"type":"RobertaProcessing","sep":["b",3],"cls":["a",999]})"),
                  "post_processor has the token '999'; expected 0..262");
}

TEST(Tokenizer, ComparesTheTextsOfIds) {
  Parts others = plain();
  others.merges[2].second = "l";
  others.merges[3] = {"hel", "o"};
  EXPECT_EQ(made(plain()).first_difference(made(plain())), std::nullopt);
  EXPECT_EQ(made(plain()).first_difference(made(others)), 258);
  Parts more = plain();
  more.added += R"(,{"id":263,"content":"<|user|>"})";
  EXPECT_EQ(made(more).first_difference(made(plain())), std::nullopt) << "only ids of both count";
}

#ifdef HAS_PCRE2
TEST(Tokenizer, SplitsWordsNumbersAndSpacesAsGpt2Does) {
  const Tokenizer tokenizer = made({});
  // A piece ends where two tokens do not merge although a merge exists.
  EXPECT_EQ(encoded(tokenizer, "o  w"), (Ids{'o', ' ', 260})) << "the last blank is the word's";
  EXPECT_EQ(encoded(tokenizer, "1o r"), (Ids{'1', 'o', ' ', 'r'}));
  EXPECT_EQ(encoded(tokenizer, "it'll"), (Ids{'i', 't', '\'', 257}));
}

TEST(Tokenizer, ABlankMayBePutBeforeAText) {
  const Parts parts{.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":true})"};
  EXPECT_EQ(encoded(parts, "w"), (Ids{260}));
  EXPECT_EQ(encoded(parts, " w"), (Ids{260}));
  EXPECT_FALSE(made(parts).cuts_at_lines());
  EXPECT_TRUE(made({}).cuts_at_lines());
  EXPECT_FALSE(made(plain()).cuts_at_lines()) << "merges cross line feeds";
}

TEST(Tokenizer, WrongExpressionsAreNamed) {
  EXPECT_VALUES(refusal({.pre_tokenizer = R"({"type":"Split","pattern":{"Regex":"a(b"},)"
                                          R"("behavior":"Isolated","invert":false})"}),
                "'a(b' pre-tokenizer character 3");
  EXPECT_CONTAINS(refusal({.pre_tokenizer = R"({"type":"Split","pattern":{"String":" "},)"
                                            R"("behavior":"Isolated","invert":false})"}),
                  "expected a Regex");
}

// PCRE2 gives up after a number of steps.
TEST(Tokenizer, AnExpressionThatNeedsTooManyStepsIsNamed) {
  const Tokenizer tokenizer =
      made({.pre_tokenizer = R"({"type":"Split","pattern":{"Regex":"(a+)+$"},)"
                             R"("behavior":"Isolated","invert":false})"});
  EXPECT_CONTAINS(
      test_support::error_of<DataError>([&] { encoded(tokenizer, std::string(2000, 'a') + "b"); }),
      "regular expression cannot be matched with this text");
}
#endif

#ifdef HAS_UTF8PROC
TEST(Tokenizer, ComposesCharacters) {
  Parts parts = plain();
  parts.normalizer = R"({"type":"NFC"})";
  EXPECT_EQ(encoded(parts, "e\xCC\x81"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(encoded(plain(), "e\xCC\x81"), (Ids{'e', 0xCC, 0x81}));
}

// The library `tokenizers` composes the texts of added tokens that it finds in composed text.
TEST(Tokenizer, ComposesAddedTokensThatAreNormalized) {
  Parts parts = plain();
  parts.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})";
  parts.added =
      "{\"id\":262,\"content\":\"cafe\xCC\x81\",\"normalized\":true},"
      "{\"id\":263,\"content\":\"\xE2\x84\xAB\",\"normalized\":true},"
      "{\"id\":264,\"content\":\"A\xCC\x8A\",\"normalized\":true},"
      "{\"id\":265,\"content\":\"o\xCC\x88\",\"normalized\":false}";
  EXPECT_EQ(encoded(parts, "cafe\xCC\x81 caf\xC3\xA9"), (Ids{262, ' ', 262}));
  // The sign for angstrom, and A with a combining ring, both compose to U+00C5.
  EXPECT_EQ(encoded(parts, "\xE2\x84\xABxA\xCC\x8A\xC3\x85"), (Ids{263, 'x', 263, 263}));
  EXPECT_EQ(encoded(parts, "o\xCC\x88\xC3\xB6"), (Ids{265, 0xC3, 0xB6}));
  EXPECT_EQ(made(parts).id_of("cafe\xCC\x81"), 262);
  EXPECT_EQ(made(parts).decode(Ids{262}), "cafe\xCC\x81");
}
#endif

}  // namespace
}  // namespace io
