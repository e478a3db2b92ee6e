// Texts and token files: vocabulary, windows, parts, and what is said about each kind of damage.
#include "io/data/readers/tokens/text_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/data/loader/batch_loader.h"
#include "tests/io/data/sources/dataset_fixture.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

class TextFiles : public dataset_fixture::DatasetFiles {
 protected:
  TextFiles() : DatasetFiles("text") {}
};

std::string words(const std::vector<int>& ids) {  // 16 bits each, little-endian
  std::string bytes;
  for (const int id : ids) bytes += {static_cast<char>(id & 0xFF), static_cast<char>(id >> 8)};
  return bytes;
}

using Ids = std::vector<std::int32_t>;

TEST_F(TextFiles, IdsAreRanksInTheSortedSetOfAllBytes) {
  write("b.txt", "cab\xFF");
  write("a.txt", "bananas ");
  write("notes.md", "zzz");
  options_.text.context = 1;
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.vocabulary(),
            " abcns\xFF");  // b.txt's byte 255 counts, too, though it is in the last 10 %
  EXPECT_EQ(splits.test.vocabulary(), splits.train.vocabulary());
  EXPECT_EQ(splits.train.classes(), 7);
  EXPECT_EQ(splits.train.as<TokenSamples>().tokens.all(),
            (Ids{2, 1, 4, 1, 4, 1, 5, 0, 3, 1}));  // int(0.9 * 12) = 10 of "bananas cab\xFF"
  EXPECT_EQ(splits.test.as<TokenSamples>().tokens.all(), (Ids{2, 6}));
}

std::string unmarked_utf16(const std::u16string& text, bool big_endian) {
  std::string bytes;
  for (const char16_t unit : text) {
    const char high = static_cast<char>(unit >> 8), low = static_cast<char>(unit & 0xFF);
    bytes += big_endian ? std::string{high, low} : std::string{low, high};
  }
  return bytes;
}

// With a byte-order mark.
std::string utf16(const std::u16string& text, bool big_endian) {
  return unmarked_utf16(u"\uFEFF" + text, big_endian);
}

TEST_F(TextFiles, ByteOrderMarksSayHowATextIsRead) {
  options_.text.context = 1;
  write("a.txt", "na\xC3\xAFve na\xC3\xAFve!\n");
  const DatasetSplits plain = load();
  for (const std::string& text :
       {utf16(u"na\u00EFve na\u00EFve!\n", false), utf16(u"na\u00EFve na\u00EFve!\n", true),
        std::string("\xEF\xBB\xBFna\xC3\xAFve na\xC3\xAFve!\n")}) {
    write("a.txt", text);
    const DatasetSplits splits = load();
    EXPECT_EQ(splits.train.vocabulary(), plain.train.vocabulary());
    EXPECT_EQ(splits.train.as<TokenSamples>().tokens.all(),
              plain.train.as<TokenSamples>().tokens.all());
    EXPECT_EQ(splits.test.as<TokenSamples>().tokens.all(),
              plain.test.as<TokenSamples>().tokens.all());
  }
  write("b.txt", "na\xC3\xAFve");  // each file by its own
  EXPECT_EQ(load().train.vocabulary(), plain.train.vocabulary());
  write("b.txt", "\xFF\xFEx");
  expect_complaint({"b.txt: ends character UTF-16"});
  for (const std::string& mark : {std::string("\xFF\xFE\0\0", 4), std::string("\0\0\xFE\xFF", 4)}) {
    write("b.txt", mark + "x");
    expect_complaint({"b.txt", "mark of UTF-32", "expected UTF-8"});
  }
}

TEST_F(TextFiles, WideCharactersNeedTheirMark) {
  const std::u16string latin = u"na\u00EFve questions\n",
                       greek = u"\u03B5\u03BD \u03B1\u03C1\u03C7\u03B7, \u03B7\u03BD \u03BF\n";
  for (const std::u16string& text : {latin, greek})
    for (const bool big_endian : {false, true}) {
      write("a.txt", unmarked_utf16(text, big_endian));
      expect_complaint({"a.txt UTF-16 0 UTF-8, UTF-16 iconv"});
    }
  std::string wide;
  for (const char c : std::string("naive questions\n")) wide += {c, 0, 0, 0};
  write("a.txt", wide);
  expect_complaint({"a.txt UTF-32"});
  options_.text.context = 1;
  write("a.txt", std::string("some text with a\0 zero byte", 27));
  EXPECT_EQ(load().train.vocabulary().front(), '\0');
}

TEST_F(TextFiles, PartsOfTheirOwnAreNotTrainedOn) {
  const std::string text(1000, 'x');
  const auto refused = [&](const std::vector<std::string>& names, const std::string& named) {
    for (const std::string& name : names) write(name, text);
    expect_complaint({named + ": part " + std::to_string(names.size()) + " --data-dir FILE.txt"});
    for (const std::string& name : names) std::filesystem::remove(folder_ / name);
  };
  refused({"wiki.train.txt", "wiki.valid.txt", "wiki.test.txt"}, "wiki.test.txt");
  refused({"train.txt", "val.txt"}, "val.txt");
  refused({"Train.txt", "Test-1.txt"}, "Test-1.txt");
  refused({"a.txt", "test.txt.gz"}, "test.txt.gz");
  for (const std::string name : {"test.txt", "trained.txt", "latest.txt", "contest_val.txt"}) {
    write(name, text);
    EXPECT_EQ(load().train.vocabulary(), "x") << name;  // the only one, or no part of that name
    if (name == "test.txt") std::filesystem::remove(folder_ / name);
  }
}

TEST_F(TextFiles, WindowsFollowTheStrideInTrainingAndTheContextInTesting) {
  write("input.txt", std::string(500, 'a') + std::string(500, 'b'));
  options_.text.context = 10;
  EXPECT_EQ(load().train.size(), 89);  // 900 tokens: (900 - 1) / 10
  EXPECT_EQ(load().test.size(), 9);
  options_.text.stride = 1;
  EXPECT_EQ(load().train.size(), 890);
  EXPECT_EQ(load().test.size(), 9);
  options_.text.stride = 25;
  EXPECT_EQ(load().train.size(), 36);  // the last begins at 875
  options_.limit = 7;
  EXPECT_EQ(load().train.size(), 7);
}

TEST_F(TextFiles, UnshuffledBatchesAreTheFilesWindowsInOrder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 26);
  write("input.txt", text);
  options_.text.context = 8;
  const DatasetSplits splits = load();
  std::array<std::int32_t, 256> rank{};
  for (std::size_t i = 0; i < splits.train.vocabulary().size(); ++i)
    rank[static_cast<unsigned char>(splits.train.vocabulary()[i])] = static_cast<std::int32_t>(i);
  BatchLoader loader(splits.train,
                     {.size = splits.train.size(), .global_batch = 4, .shuffle = false}, {});
  for (std::size_t step = 0; step < 11; ++step) {
    const Batch& batch = loader.next();
    ASSERT_EQ(batch.tokens.size(), static_cast<std::size_t>(8 * batch.count()));
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      const std::size_t at = step * 32 + i;  // windows do not overlap
      ASSERT_EQ(batch.tokens[i], rank[static_cast<unsigned char>(text[at])]);
      ASSERT_EQ(batch.labels[i], rank[static_cast<unsigned char>(text[at + 1])]);
    }
  }
}

TEST_F(TextFiles, ShortEmptyAndMissingTextsAreNamed) {
  expect_complaint<MissingFileError>({"*.txt", "--data-dir"});
  expect_complaint<MissingFileError>("tinyshakespeare",
                                     {"tools/scripts/get_data.sh tinyshakespeare"});
  write("a.txt", "");
  expect_complaint({"a.txt", "empty"});
  write("a.txt", std::string(71, 'x'));
  expect_complaint({"first 90 %", "63 tokens", "at least 65", "--context 64"});
  write("a.txt", std::string(200, 'x'));
  expect_complaint({"last 10 %", "20 tokens", "at least 65"});
}

TEST_F(TextFiles, TokenFilesAreReadWithAndWithoutHeader) {
  std::string header(1024, '\0');
  header.replace(0, 12, std::string("\x88\xD8\x34\x01\x01\x00\x00\x00\x03\x00\x00\x00", 12));
  write("train.bin", words({7, 300, 2, 65534, 1}));
  write("val.bin", header + words({4, 5, 6}));
  options_.text.context = 2;
  const DatasetSplits splits = load("tokens");
  EXPECT_EQ(splits.train.as<TokenSamples>().tokens.all(), (Ids{7, 300, 2, 65534, 1}));
  EXPECT_EQ(splits.test.as<TokenSamples>().tokens.all(), (Ids{4, 5, 6}));
  EXPECT_EQ(splits.train.classes(), 65535);
  EXPECT_EQ(splits.test.classes(), 65535);
  EXPECT_EQ(splits.train.vocabulary(), "");
  write("val.bin", header + words({4, 5}));
  expect_complaint("tokens", {"val.bin", "2 tokens", "announces 3"});
}

TEST_F(TextFiles, TokensOfValAreForTestingUnlessTestIsNamed) {
  options_.text.context = 1;
  write("train.bin", words({1, 2, 3, 4}));
  write("val.bin", words({1, 2, 3}));
  EXPECT_EQ(load("tokens").warnings, std::vector<std::string>{});
  write("test.bin", words({4, 3}));
  const DatasetSplits both = load("tokens");
  EXPECT_EQ(both.test.as<TokenSamples>().tokens.all(), (Ids{1, 2, 3}));
  EXPECT_EQ(both.test_part, "val");
  ASSERT_EQ(both.warnings.size(), 1U);
  EXPECT_VALUES(both.warnings[0], "val test val");
  options_.test_part = "test";
  EXPECT_EQ(load("tokens").test.as<TokenSamples>().tokens.all(), (Ids{4, 3}));
  EXPECT_EQ(load("tokens").warnings, std::vector<std::string>{});
  options_.test_part = "val";
  EXPECT_EQ(load("tokens").test.as<TokenSamples>().tokens.all(), (Ids{1, 2, 3}));
}

TEST_F(TextFiles, WrongTokenFilesAreNamed) {
  options_.text.context = 2;
  write("train.bin", words({1, 2, 3}));
  expect_complaint<MissingFileError>("tokens", {"val.bin"});
  write("val.bin", words({1, 2, 9, 4}));
  options_.text.vocabulary_size = 9;
  expect_complaint("tokens", {"val.bin", "position 2", "found 9", "0..8"});
  options_.text.vocabulary_size = 10;
  EXPECT_EQ(load("tokens").test.classes(), 10);
  write("train.bin", words({1, 2, 3}) + "x");
  expect_complaint("tokens", {"train.bin", "7 bytes"});
  write("train.bin", "");
  expect_complaint("tokens", {"train.bin", "found 0 tokens", "at least 3"});
}

}  // namespace
}  // namespace io
