// Data that are read by the coding of others: names decide, and what has none there is counted.
#include "io/data/sources/sample_coding.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "io/data/sources/csv/csv_coding.h"
#include "tests/support/test_support.h"

namespace {

using io::Dataset;
using io::DatasetOptions;
using io::DatasetSplits;
using test_support::write_text;

Dataset labelled(std::vector<std::int32_t> labels, std::vector<std::string> names) {
  Dataset set;
  set.name = "set";
  set.shape = {1, 1, 1};
  set.classes = names.empty() ? 10 : std::ssize(names);
  set.class_names = std::move(names);
  set.labels = std::move(labels);
  return set;
}

std::string place(std::int64_t i) { return "sample " + std::to_string(i); }

TEST(SampleCoding, ClassesAreMatchedByTheirNames) {
  const io::SampleCoding coding{.like = labelled({}, {"ant", "bee", "cat"})};
  Dataset set = labelled({0, 1, 2, 1, 3}, {"bee", "cat", "dog", "eel"});
  std::vector<std::string> lines;
  match_classes(coding, set, place, lines);
  EXPECT_EQ(set.labels, (std::vector<std::int32_t>{1, 2, 3, 2, 4}));
  EXPECT_EQ(set.classes, 3);
  EXPECT_EQ(set.class_names, coding.like.class_names);
  EXPECT_EQ(set.unknown_classes, (std::vector<std::string>{"dog", "eel"}));
  EXPECT_EQ(lines,
            (std::vector<std::string>{"set: 2 of 5 samples have a class that the model lacks: "
                                      "'dog', 'eel' (first: sample 2)"}));
}

TEST(SampleCoding, ClassesWithoutNamesAreMatchedByTheirNumbers) {
  const io::SampleCoding coding{.like = labelled({}, {"ant", "bee", "cat"})};
  Dataset set = labelled({2, 0, 7}, {});
  std::vector<std::string> lines;
  match_classes(coding, set, place, lines);
  EXPECT_EQ(set.labels, (std::vector<std::int32_t>{2, 0, 3}));
  EXPECT_EQ(set.unknown_classes, (std::vector<std::string>{"7"}));
}

TEST(SampleCoding, FewNamesAreTold) {
  io::UnknownNames unknown;
  EXPECT_EQ(unknown.text("rows", 9), "");
  for (const char* name : {"a", "b", "a", "c", "d", "e\n", "f"})
    unknown.add(name, [&] { return "row " + std::to_string(unknown.count()); });
  EXPECT_EQ(
      unknown.text("rows", 9),
      "7 of 9 rows that the model lacks: 'a', 'b', 'c', 'd', 'e\\n' and others (first: row 1)");
}

class CodedData : public ::testing::Test {
 protected:
  static std::shared_ptr<io::SampleCoding> coding_of(const DatasetSplits& splits) {
    auto coding = std::make_shared<io::SampleCoding>();
    coding->like = splits.train;
    coding->table = splits.coding;
    coding->source = "the snapshot";
    return coding;
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(CodedData, TheSameTableIsReadTheSame) {
  std::string text = "c,x,y\n";
  for (int i = 0; i < 50; ++i)
    text += std::string(1, static_cast<char>('a' + i % 3)) + "," + std::to_string(i * i % 17) +
            "," + std::to_string(i % 4) + "\n";
  write_text(folder_ / "t.csv", text);
  for (const bool regression : {false, true}) {
    DatasetOptions options;
    options.name = "csv";
    options.annotations = folder_ / "t.csv";
    options.regression = regression;
    const DatasetSplits learned = io::load_dataset(options);
    options.coding = coding_of(learned);
    const DatasetSplits coded = io::load_dataset(options);
    EXPECT_EQ(coded.train.features, learned.train.features);
    EXPECT_EQ(coded.train.labels, learned.train.labels);
    EXPECT_EQ(coded.train.targets, learned.train.targets);
    EXPECT_EQ(coded.test.features, learned.test.features);
    EXPECT_EQ(coded.test.labels, learned.test.labels);
    EXPECT_EQ(io::data_digest(coded.train, coded.coding.get()).text,
              io::data_digest(learned.train, learned.coding.get()).text);
    EXPECT_TRUE(coded.unknown.empty());
    options.parts = io::Parts::kHoldOut;
    const DatasetSplits whole = io::load_dataset(options);
    EXPECT_EQ(whole.test.size(), 50);
    EXPECT_EQ(whole.train.size(), 0);
  }
}

TEST_F(CodedData, ATableOfAnotherTaskIsRefused) {
  write_text(folder_ / "t.csv", "x,y\n1,2\n2,3\n3,3\n4,2\n");
  DatasetOptions options;
  options.name = "csv";
  options.annotations = folder_ / "t.csv";
  options.coding = coding_of(io::load_dataset(options));
  options.regression = true;
  EXPECT_THROW(static_cast<void>(io::load_dataset(options)), io::DataError);
}

TEST_F(CodedData, ATextIsReadByTheVocabulary) {
  write_text(folder_ / "t.txt", "cabcabcabcabcab");
  DatasetOptions options;
  options.name = "text";
  options.directory = folder_ / "t.txt";
  options.context = 1;
  options.coding = coding_of(io::load_dataset(options));
  write_text(folder_ / "t.txt", "bzcbxb");
  options.parts = io::Parts::kHoldOut;
  const DatasetSplits splits = io::load_dataset(options);
  EXPECT_EQ(splits.test.tokens, (std::vector<std::int32_t>{1, 2, 1, 1}));
  EXPECT_EQ(splits.test.vocabulary, "abc");
  ASSERT_EQ(splits.unknown.size(), 1u);
  EXPECT_NE(splits.unknown[0].find("2 of 6 bytes are characters that the model lacks: 'z', 'x' "
                                   "(first: byte 2)"),
            std::string::npos)
      << splits.unknown[0];
}

}  // namespace
