// What a checkpoint states of its samples reads back whole, and what contradicts itself is refused.
#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/sources/sample_inputs.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/run/data/sample_statement.h"

namespace {

using tools::read_sample_statement;
using tools::sample_statement;

io::DatasetOptions csv_options(const std::string& path) {
  io::DatasetOptions options;
  options.name = "csv";
  options.csv.annotations = path;
  return options;
}

TEST(SampleStatement, OfImagesHasClassesAndNormalization) {
  io::DatasetSplits splits;
  io::Dataset& set = splits.train;
  set.name = "caf\xE9";  // Latin-1: bytes, and no UTF-8
  set.set_shape({4, 6, 3});
  set.as<io::ClassLabels>().count = 2;
  set.as<io::ClassLabels>().names = {"a \"quoted\"\n", "\xFF\x01"};
  set.as<io::ImageSamples>().format.mean = {0.1f, 0.2f, 1.0f / 3};
  set.as<io::ImageSamples>().format.deviation = {1e-3f, 2, 3};
  set.as<io::ImageSamples>().format.scaled = true;
  const std::string text = sample_statement(splits, io::Normalization::kStandard);
  const tools::InputSchema stated = read_sample_statement(text, "x");
  EXPECT_EQ(stated.normalization, io::Normalization::kStandard);
  const io::Dataset& read = stated.splits.train;
  ASSERT_NE(read.find<io::ImageSamples>(), nullptr);
  EXPECT_EQ(read.name, set.name);
  EXPECT_EQ(read.shape(), set.shape());
  EXPECT_EQ(read.classes(), 2);
  EXPECT_EQ(read.class_names(), set.class_names());
  EXPECT_EQ(read.as<io::ImageSamples>().format.mean, set.as<io::ImageSamples>().format.mean);
  EXPECT_EQ(read.as<io::ImageSamples>().format.deviation,
            set.as<io::ImageSamples>().format.deviation);
  EXPECT_TRUE(read.as<io::ImageSamples>().format.scaled);
  EXPECT_EQ(read.size(), 0);
}

// 40 names, which take positions; two colors and a value that is no UTF-8, a feature each.
std::string table(int rows) {
  std::string text = "name,color,size,kind\n";
  for (int i = 0; i < rows; ++i)
    text += "n" + std::to_string(i % 40) + "," +
            (i % 5 == 0   ? "\xE9"
             : i % 2 == 0 ? "red"
                          : "blue") +
            "," + std::to_string(i * i) + "," + (i % 3 == 0 ? "x" : "y") + "\n";
  return text;
}

io::SampleBlock rows_of(const std::string& path, const io::DatasetSplits& splits) {
  io::SampleBlock block;
  io::open_samples({path}, splits)->fill(1000, io::Wanted::kSamples, block);
  return block;
}

std::vector<float> values_of(const io::SampleBlock& block) {
  return std::get<io::FeatureSamples>(block.samples).values;
}

TEST(SampleStatement, OfArraysHasTheShapeOfTheLabels) {
  io::DatasetSplits splits;
  splits.train = {.name = "arrays",
                  .samples = io::ArraySamples{.extents = {4, 6, 2}, .dtype = base::DType::kU8},
                  .labels = io::PositionLabels{.extents = {4, 6}, .count = 3}};
  const std::string text = sample_statement(splits, io::Normalization::kUnit);
  const io::Dataset found = read_sample_statement(text, "x").splits.train;
  EXPECT_EQ(found.model_shape(), (std::vector<std::int64_t>{4, 6, 2}));
  EXPECT_EQ(found.label_shape(), (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(found.classes(), 3);
  EXPECT_EQ(found.as<io::ArraySamples>().dtype, base::DType::kU8);
  const auto read = [&](const std::string& of_text) {
    return read_sample_statement(
        std::string(text).replace(text.find(",\"dtype\":\"uint8\""), 16, of_text), "x");
  };
  EXPECT_EQ(read("").splits.train.as<io::ArraySamples>().dtype, std::nullopt)
      << "an earlier version";
  EXPECT_THROW(read(",\"dtype\":\"bytes\""), io::DataError);
  splits.train.samples = io::ArraySamples{.extents = {5, 1, 1}, .are_tokens = true};
  splits.train.labels = io::ClassLabels{.count = 2};
  const io::Dataset tokens =
      read_sample_statement(sample_statement(splits, io::Normalization::kUnit), "x").splits.train;
  EXPECT_EQ(tokens.model_shape(), std::vector<std::int64_t>{5});
  EXPECT_EQ(tokens.as<io::ClassLabels>().count, 2);
  EXPECT_THROW(
      read_sample_statement(std::string(text).replace(text.find("[4,6]"), 5, "[4,0]"), "x"),
      io::DataError);
}

TEST(SampleStatement, OfATableReadsOtherTablesAlike) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "t.csv";
  test_support::write_text(path, table(200));
  const io::DatasetSplits splits = io::load_dataset(csv_options(path));
  const tools::InputSchema stated =
      read_sample_statement(sample_statement(splits, io::Normalization::kUnit), "x");
  EXPECT_EQ(stated.normalization, std::nullopt);
  EXPECT_EQ(stated.splits.train.class_names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(stated.splits.train.shape(), splits.train.shape());
  test_support::write_text(path, table(60));
  const io::SampleBlock expected = rows_of(path, splits), found = rows_of(path, stated.splits);
  EXPECT_EQ(found.count(), 60);
  EXPECT_EQ(values_of(found), values_of(expected));
}

TEST(SampleStatement, OfATableHasItsDecimalSignsMarkersAndOddCells) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "t.csv";
  std::string text = "size;size;;kind\n";
  for (int i = 0; i < 40; ++i)
    text += (i == 9 ? "Total" : std::to_string(i) + ",5") + ";" + (i % 7 == 0 ? "-999" : "1.250") +
            ";" + (i % 4 == 0 ? "NA" : "DE") + ";" + (i % 2 == 0 ? "NA" : "x") + "\n";
  test_support::write_text(path, text);
  io::DatasetOptions options = csv_options(path);
  options.csv.missing = "-999";
  const io::DatasetSplits splits = io::load_dataset(options);
  const io::DatasetSplits stated =
      read_sample_statement(sample_statement(splits, io::Normalization::kUnit), "x").splits;
  EXPECT_EQ(values_of(rows_of(path, stated)), values_of(rows_of(path, splits)));
  EXPECT_EQ(stated.coding->columns[0].odd, std::vector<std::string>{"Total"});
  EXPECT_EQ(stated.coding->columns[0].decimal, ',');
  EXPECT_EQ(stated.coding->selection.header, splits.coding->selection.header);
  EXPECT_EQ(stated.coding->missing->markers(), std::vector<std::string>{"-999"});
}

TEST(SampleStatement, HasTheSeparatorThatWasFound) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "t.csv";
  test_support::write_text(path, "a;kind\n1;x\n2;y\n3;x\n4;y\n");
  io::DatasetOptions options = csv_options(path);
  std::string text = sample_statement(io::load_dataset(options), io::Normalization::kUnit);
  const auto found = [](const std::string& stated) {
    return read_sample_statement(stated, "x").splits.coding->found_separator;
  };
  EXPECT_EQ(found(text), ';');
  const std::string member = "\"found_separator\":\";\",";
  ASSERT_NE(text.find(member), std::string::npos) << text;
  for (const char* bad : {"\"found_separator\":\"auto\",", "\"found_separator\":\"x\","}) {
    std::string other = text;
    EXPECT_THROW(found(other.replace(other.find(member), member.size(), bad)), io::DataError);
  }
  text.erase(text.find(member), member.size());  // as earlier versions wrote it
  EXPECT_EQ(found(text), 0);
  options.csv.separator = ";";
  EXPECT_EQ(found(sample_statement(io::load_dataset(options), io::Normalization::kUnit)), 0);
}

TEST(SampleStatement, WithoutMarkersHasThoseOfItsTime) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "t.csv";
  test_support::write_text(path, "a,kind\nNone,x\nplain,y\nNone,x\nplain,x\n");
  io::DatasetOptions options = csv_options(path);
  options.csv.missing = "NA";
  options.csv.header = io::CsvHeader::kYes;
  std::string text = sample_statement(io::load_dataset(options), io::Normalization::kUnit);
  const std::string markers = "\"missing\":[\"NA\"],";
  ASSERT_NE(text.find(markers), std::string::npos) << text;
  text.erase(text.find(markers), markers.size());
  text.replace(text.find("\"schema\":3"), 10, "\"schema\":1");
  const auto coding = read_sample_statement(text, "x").splits.coding;
  const io::CsvColumn& column = coding->columns.at(0);
  EXPECT_TRUE(column.missing->has("n/A") && column.missing->has("?"));
  EXPECT_FALSE(column.missing->has("None"));  // a value of its own in those checkpoints
}

TEST(SampleStatement, OfSeveralLabelsHasTheirNamesAndColumns) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "t.csv";
  test_support::write_text(path, "u,a,v\n1,1,0\n0,2,1\n1,4,0\n0,5,1\n");
  io::DatasetOptions options = csv_options(path);
  options.task = io::Task::kMultiLabel;
  options.csv.label_column = "v,u";
  const std::string text = sample_statement(io::load_dataset(options), io::Normalization::kUnit);
  EXPECT_TRUE(text.starts_with("{\"schema\":4,")) << text;
  const io::DatasetSplits read = read_sample_statement(text, "x").splits;
  EXPECT_EQ(read.train.as<io::MultiLabels>().names, (std::vector<std::string>{"v", "u"}));
  EXPECT_EQ(read.coding->selection.labels(), (std::vector<std::size_t>{2, 0}));
  const auto refuses = [&](const std::string& part, const std::string& other) {
    std::string bad = text;
    ASSERT_NE(bad.find(part), std::string::npos) << bad;
    bad.replace(bad.find(part), part.size(), other);
    EXPECT_THROW(read_sample_statement(bad, "x"), io::DataError) << bad;
  };
  refuses("\"more_labels\":[0]", "\"more_labels\":[3]");
  refuses("[\"v\",\"u\"]", "[\"v\"]");
}

TEST(SampleStatement, OfARegressionHasTheTarget) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "t.csv";
  test_support::write_text(path, "a,price\n1,10.5\n2,30\n4,20\n5,25.25\n");
  io::DatasetOptions options = csv_options(path);
  options.csv.test_share = 0.25;
  options.task = io::Task::kRegression;
  const io::DatasetSplits splits = io::load_dataset(options);
  const std::string text = sample_statement(splits, io::Normalization::kUnit);
  EXPECT_TRUE(text.starts_with("{\"schema\":3,")) << text;
  const io::Dataset read = read_sample_statement(text, "x").splits.train;
  ASSERT_TRUE(read.target());
  EXPECT_EQ(read.target()->name, "price");
  EXPECT_EQ(read.target()->mean, splits.train.target()->mean);
  EXPECT_EQ(read.target()->deviation, splits.train.target()->deviation);
  const auto refuses = [&](const std::string& part, const std::string& other) {
    std::string bad = text;
    ASSERT_NE(bad.find(part), std::string::npos) << bad;
    bad.replace(bad.find(part), part.size(), other);
    EXPECT_THROW(read_sample_statement(bad, "x"), io::DataError) << bad;
  };
  refuses("\"classes\":1", "\"classes\":3");
  refuses("\"name\":\"price\"", "\"nam\":\"price\"");
  refuses("\"schema\":3", "\"schema\":6");
}

TEST(SampleStatement, IsLeftOutWhereItWouldBeTooLong) {
  io::DatasetSplits splits;
  splits.train.set_shape({1, 1, 1});
  splits.train.as<io::ClassLabels>().count = 1;
  splits.train.as<io::ClassLabels>().names = {std::string(std::size_t{17} << 20, 'a')};
  EXPECT_EQ(sample_statement(splits, io::Normalization::kUnit), "");
}

TEST(SampleStatement, ThatContradictsItselfIsRefused) {
  io::DatasetSplits splits;
  splits.train.set_shape({2, 2, 1});
  splits.train.as<io::ClassLabels>().count = 2;
  splits.train.as<io::ClassLabels>().names = {"a", "b"};
  splits.train.as<io::ImageSamples>().format.mean =
      splits.train.as<io::ImageSamples>().format.deviation = {0.5f};
  const std::string good = sample_statement(splits, io::Normalization::kStandard);
  ASSERT_EQ(read_sample_statement(good, "x").splits.train.classes(), 2);
  const auto refuses = [&](const std::string& part, const std::string& other,
                           const std::string& words) {
    std::string text = good;
    const std::size_t at = text.find(part);
    ASSERT_NE(at, std::string::npos) << part << " in " << good;
    text.replace(at, part.size(), other);
    const std::string error_text =
        test_support::error_of<io::DataError>([&] { read_sample_statement(text, "a.ckpt"); });
    EXPECT_VALUES(error_text, words);
    EXPECT_TRUE(error_text.starts_with("a.ckpt")) << error_text;
  };
  refuses("\"schema\":1", "\"schema\":6", "has schema 6, expected 1 to 5");
  refuses("images", "sounds", "kind 'sounds', expected images, features, tokens or arrays");
  refuses("images", "features", "lacks \"table\"");
  refuses("[2,2,1]", "[2,2]", "shape 2 3");
  refuses("[2,2,1]", "[2,2,3]", "1 1 channels, 3");
  refuses("[2,2,1]", "[0,2,1]", "the extent 0");
  refuses("[2,2,1]", "[99999999999999,99999999,1]", "the extent 99999999999999");
  refuses("\"classes\":2", "\"classes\":3", "names of 2 classes, expected 3");
  refuses("\"standard\"", "\"other\"", "normalization 'other', expected unit or standard");
  refuses("[0.5]", "[1e300]", "expected numbers");
  refuses("{", "[", "invalid JSON");
}

}  // namespace
