// Data that are read by the coding of others: names decide, and what has none there is counted.
#include "io/data/dataset/sample_coding.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/sources/data_digest.h"
#include "io/data/sources/dataset_registry.h"
#include "io/data/sources/sample_inputs.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using io::Dataset;
using io::DatasetOptions;
using io::DatasetSplits;
using test_support::write_text;

Dataset labelled(std::vector<std::int32_t> labels, std::vector<std::string> names) {
  io::ClassLabels classes{.ids = std::move(labels),
                          .count = names.empty() ? 10 : std::ssize(names),
                          .names = std::move(names)};
  return {.name = "set",
          .samples = io::ImageSamples{.format = {.shape = {1, 1, 1}}},
          .labels = std::move(classes)};
}

std::string place(std::int64_t i) { return "sample " + std::to_string(i); }

TEST(SampleCoding, ClassesAreMatchedByTheirNames) {
  const io::SampleCoding coding{.like = labelled({}, {"ant", "bee", "cat"})};
  Dataset set = labelled({0, 1, 2, 1, 3}, {"bee", "cat", "dog", "eel"});
  std::vector<std::string> lines;
  match_classes(coding, set, place, lines);
  EXPECT_EQ(set.as<io::ClassLabels>().ids, (std::vector<std::int32_t>{1, 2, 3, 2, 4}));
  EXPECT_EQ(set.classes(), 3);
  EXPECT_EQ(set.class_names(), coding.like.class_names());
  EXPECT_EQ(set.unknown_classes(), (std::vector<std::string>{"dog", "eel"}));
  EXPECT_EQ(lines,
            (std::vector<std::string>{"set: 2 of 5 samples have a class that the model lacks: "
                                      "'dog', 'eel' (first: sample 2)"}));
}

TEST(SampleCoding, ClassesWithoutNamesAreMatchedByTheirNumbers) {
  const io::SampleCoding coding{.like = labelled({}, {"ant", "bee", "cat"})};
  Dataset set = labelled({2, 0, 7}, {});
  std::vector<std::string> lines;
  match_classes(coding, set, place, lines);
  EXPECT_EQ(set.as<io::ClassLabels>().ids, (std::vector<std::int32_t>{2, 0, 3}));
  EXPECT_EQ(set.unknown_classes(), (std::vector<std::string>{"7"}));
}

TEST(SampleCoding, EqualNumbersAreTheSameClass) {
  const auto coded = [](std::vector<std::string> model, std::vector<std::string> data) {
    std::vector<std::int32_t> labels;
    for (std::size_t i = 0; i < data.size(); ++i) labels.push_back(static_cast<std::int32_t>(i));
    Dataset set = labelled(std::move(labels), std::move(data));
    std::vector<std::string> lines;
    io::match_classes(
        {.like = labelled({}, std::move(model))}, set,
        [](std::int64_t) { return std::string("a row"); }, lines);
    return set.as<io::ClassLabels>().ids;
  };
  using CodedIds = std::vector<std::int32_t>;
  EXPECT_EQ(coded({"0", "1"}, {"0.0", "1.0", "1"}), (CodedIds{0, 1, 1}));
  EXPECT_EQ(coded({"0.0", "1.0"}, {"1", "0"}), (CodedIds{1, 0}));
  EXPECT_EQ(coded({"0", "1"}, {"1,0", "1e0", "+1", "2.0", "one"}), (CodedIds{1, 1, 1, 2, 3}));
  // Two classes of the model have this number: their names alone tell them apart.
  EXPECT_EQ(coded({"1", "1.0"}, {"1", "1.0", "1.00"}), (CodedIds{0, 1, 2}));
  EXPECT_EQ(coded({"1000", "a"}, {"1,000"}), (CodedIds{2}));
  EXPECT_EQ(coded({"1", "a"}, {"1,000"}), (CodedIds{2}));
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

// Features and labels, whichever kind of labels these are.
void expect_same(const Dataset& coded, const Dataset& learned) {
  EXPECT_EQ(coded.as<io::FeatureSamples>().values, learned.as<io::FeatureSamples>().values);
  ASSERT_EQ(coded.labels.index(), learned.labels.index());
  if (const auto* classes = learned.find<io::ClassLabels>())
    EXPECT_EQ(coded.as<io::ClassLabels>().ids, classes->ids);
  else
    EXPECT_EQ(coded.as<io::TargetValues>().values, learned.as<io::TargetValues>().values);
}

class CodedData : public ::testing::Test {
 protected:
  static std::shared_ptr<io::SampleCoding> coding_of(const DatasetSplits& splits) {
    auto coding = std::make_shared<io::SampleCoding>();
    coding->like = splits.train;
    coding->table = splits.coding;
    coding->source = "the checkpoint";
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
    options.csv.annotations = folder_ / "t.csv";
    options.task = regression ? io::Task::kRegression : io::Task::kClassification;
    const DatasetSplits learned = io::load_dataset(options);
    options.coding = coding_of(learned);
    const DatasetSplits coded = io::load_dataset(options);
    expect_same(coded.train, learned.train);
    expect_same(coded.test, learned.test);
    EXPECT_EQ(io::data_digest(coded.train, coded.coding.get()).text,
              io::data_digest(learned.train, learned.coding.get()).text);
    EXPECT_TRUE(coded.unknown.empty());
    options.parts = io::Parts::kHoldOut;
    const DatasetSplits whole = io::load_dataset(options);
    EXPECT_EQ(whole.test.size(), 50);
    EXPECT_EQ(whole.train.size(), 0);
  }
}

// With an index as pandas and R write it, whose name is empty, missing or "Unnamed: 0".
std::string measured_rows(const std::string& index) {
  std::string text = index == "short" ? "" : index;
  text += "c,x,y\n";
  for (int i = 0; i < 30; ++i)
    text += (index.empty() ? "" : std::to_string(i) + ",") + std::string(1, "ab"[i % 2]) + "," +
            std::to_string(i * i % 17) + ".5," + std::to_string(i % 4) + "\n";
  return text;
}

TEST_F(CodedData, AnUnnamedIndexIsNeitherLabelNorColumn) {
  const std::vector<std::string> indexes{"", ",", "short", "Unnamed: 0,"};
  for (const bool regression : {false, true}) {
    for (const std::string& trained : indexes) {
      DatasetOptions options;
      options.name = "csv";
      options.csv.annotations = folder_ / "t.csv";
      options.task = regression ? io::Task::kRegression : io::Task::kClassification;
      write_text(folder_ / "t.csv", measured_rows(trained));
      const DatasetSplits learned = io::load_dataset(options);
      options.coding = coding_of(learned);
      EXPECT_EQ(io::load_dataset(options).train.as<io::FeatureSamples>().values,
                learned.train.as<io::FeatureSamples>().values)
          << trained;
      options.parts = io::Parts::kHoldOut;
      const Dataset whole = io::load_dataset(options).test;
      for (const std::string& held : indexes) {
        write_text(folder_ / "t.csv", measured_rows(held));
        const Dataset set = io::load_dataset(options).test;
        const std::string which = trained + " and " + held;
        EXPECT_EQ(set.as<io::FeatureSamples>().values, whole.as<io::FeatureSamples>().values)
            << which;
        if (const auto* classes = set.find<io::ClassLabels>())
          EXPECT_EQ(classes->ids, whole.as<io::ClassLabels>().ids) << which;
        else
          EXPECT_EQ(set.as<io::TargetValues>().values, whole.as<io::TargetValues>().values)
              << which;
      }
    }
  }
}

// R's write.table() writes no name for the index, also of a single row.
TEST_F(CodedData, ASingleRowMayHaveAnIndexIfTrainingHadOne) {
  for (const std::string separator : {",", "\t", " "}) {
    const auto with_separator = [&](std::string text) {
      std::ranges::replace(text, ',', separator[0]);
      return text;
    };
    const std::string trained = with_separator(
        "\"a\",\"b\",\"y\"\n\"1\",1.5,2,\"u\"\n\"2\",2.5,9,\"v\"\n\"3\",3.5,4,\"u\"\n");
    write_text(folder_ / "t.csv", trained);
    DatasetOptions options;
    options.name = "csv";
    options.csv.annotations = folder_ / "t.csv";
    const DatasetSplits learned = io::load_dataset(options);
    ASSERT_EQ(learned.train.shape()[2], 2);
    const auto samples = [&](const std::string& text) {
      write_text(folder_ / "new.csv", with_separator(text));
      io::SampleBlock block;
      io::open_samples({folder_ / "new.csv"}, learned)->fill(9, io::Wanted::kSamples, block);
      return std::get<io::FeatureSamples>(block.samples).values;
    };
    const std::vector<float> two = samples("\"a\",\"b\"\n\"7\",5,8\n\"8\",6,1\n");
    ASSERT_EQ(two.size(), 4u);
    EXPECT_EQ(samples("\"a\",\"b\"\n\"7\",5,8\n"),
              std::vector<float>(two.begin(), two.begin() + 2));
    EXPECT_EQ(samples("\"a\",\"b\",\"y\"\n\"7\",5,8,\"u\"\n"),
              std::vector<float>(two.begin(), two.begin() + 2));
    EXPECT_THROW(samples("\"a\",\"b\"\n\"7\",5,8,9\n"), io::DataError);
  }
  // Without one, the row has a field too many.
  write_text(folder_ / "t.csv", "a,y\n1,u\n2,v\n3,u\n");
  DatasetOptions options;
  options.name = "csv";
  options.csv.annotations = folder_ / "t.csv";
  const DatasetSplits learned = io::load_dataset(options);
  write_text(folder_ / "new.csv", "a\n7,5\n");
  io::SampleBlock block;
  const auto stream = io::open_samples({folder_ / "new.csv"}, learned);
  EXPECT_THROW(stream->fill(9, io::Wanted::kSamples, block), io::DataError);
}

TEST_F(CodedData, ATableOfAnotherTaskIsRefused) {
  write_text(folder_ / "t.csv", "x,y\n1,2\n2,3\n3,3\n4,2\n");
  DatasetOptions options;
  options.name = "csv";
  options.csv.annotations = folder_ / "t.csv";
  options.coding = coding_of(io::load_dataset(options));
  options.task = io::Task::kRegression;
  EXPECT_THROW(static_cast<void>(io::load_dataset(options)), io::DataError);
}

TEST_F(CodedData, ATextIsReadByTheVocabulary) {
  write_text(folder_ / "t.txt", "cabcabcabcabcab");
  DatasetOptions options;
  options.name = "text";
  options.directory = folder_ / "t.txt";
  options.text.context = 1;
  options.coding = coding_of(io::load_dataset(options));
  write_text(folder_ / "t.txt", "bzcbxb");
  options.parts = io::Parts::kHoldOut;
  const DatasetSplits splits = io::load_dataset(options);
  EXPECT_EQ(splits.test.as<io::TokenSamples>().tokens.all(),
            (std::vector<std::int32_t>{1, 2, 1, 1}));
  EXPECT_EQ(splits.test.vocabulary(), "abc");
  ASSERT_EQ(splits.unknown.size(), 1u);
  EXPECT_CONTAINS(splits.unknown[0], "2 of 6 bytes are characters that the model lacks: 'z', 'x'");
}

}  // namespace
