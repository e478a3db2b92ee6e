// CSV files: fields, headers, columns as numbers, labels, parts, and what is said about each kind
// of damage.
#include "io/data/readers/csv/csv_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "io/base/numbers/split_mix.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/readers/csv/csv_columns.h"
#include "io/data/tables/csv_table.h"
#include "tests/io/data/sources/dataset_fixture.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

CsvTable table_of(const std::string& text) {
  return {std::vector<std::uint8_t>(text.begin(), text.end()), "t.csv"};
}

std::vector<std::string> all_fields(const std::string& text) {
  const CsvTable table = table_of(text);
  std::vector<std::string> fields;
  for (std::size_t row = 0; row < table.rows(); ++row)
    for (std::size_t c = 0; c < table.columns(); ++c) fields.emplace_back(table.field(row, c));
  return fields;
}
using Fields = std::vector<std::string>;

std::string complaint_of(const std::string& text) {
  return test_support::error_or<DataError>([&] { table_of(text); }, "none");
}

TEST(CsvTable, FieldsRowsAndLineEnds) {
  EXPECT_EQ(all_fields("a,b\n1,2\n"), (Fields{"a", "b", "1", "2"}));
  EXPECT_EQ(all_fields("a,b\r\n1,2"), (Fields{"a", "b", "1", "2"}));
  EXPECT_EQ(all_fields("a,b\r1,2\r"), (Fields{"a", "b", "1", "2"}));
  EXPECT_EQ(all_fields("\xEF\xBB\xBF"
                       "a,b\n\n  \n1,\n\n"),
            (Fields{"a", "b", "1", ""}));
  EXPECT_EQ(all_fields(" a ,\tb c \n,\n"), (Fields{"a", "b c", "", ""}));
}

TEST(CsvTable, QuotedFields) {
  EXPECT_EQ(all_fields("\"a,b\",\"c\"\"d\"\"\"\n"), (Fields{"a,b", "c\"d\""}));
  EXPECT_EQ(all_fields("\"two\r\nlines\",x\n\"\",\" y \"\n"),
            (Fields{"two\r\nlines", "x", "", " y "}));
  EXPECT_EQ(all_fields("x, \"a\" ,y"), (Fields{"x", "a", "y"}));
  EXPECT_EQ(table_of("\"1\n2\",a\nb,c").place(1), "t.csv, row 2 (line 3)");
}

TEST(CsvTable, DamageIsNamedWithItsLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"a,b,c\n1,2,3\n\n4,5\n", "t.csv, row 3 (line 4): 2 fields, 3 row 1"},
      {"a,b\n1,2,3\n", "t.csv, row 2 (line 2): 3 fields, 2 row 1"},
      {"a,b\n1,\"2\n3,4\n", "t.csv: line 2 quoted never closed"},
      {"a,b\n1,2\"3\n", "t.csv: line 2 quote inside a field"},
      {"a,b\n\"1\"x,2\n", "t.csv: line 2 text after quote"},
      {std::string("a,b\n1,\0\n", 8), "t.csv: line 2 NUL UTF-8 ASCII"},
      {"", "t.csv empty fields"},
      {" \n\r\n", "t.csv empty fields"},
      {"a,b\n1," + std::string((1 << 20) + 1, 'x'), "t.csv 1048577 bytes"},
      {std::string(70'000, ','), "t.csv 65536 fields"}};
  for (const auto& [text, values] : cases) EXPECT_VALUES(complaint_of(text), values);
}

using CsvFiles = dataset_fixture::CsvFile;

TEST_F(CsvFiles, NumbersAreStandardisedAndTextIsOneHot) {
  options_.csv.test_share = 0;
  const DatasetSplits splits = load("size,colour,kind\n1,red,x\n3,blue,y\n?,NA,x\n5,red,y\n");
  const Dataset& set = splits.train;
  EXPECT_EQ(set.name, "set.csv");
  EXPECT_EQ(set.shape(), (std::array<std::int64_t, 3>{1, 1, 3}));  // size, blue, red
  EXPECT_EQ(set.as<ClassLabels>().ids, (std::vector<std::int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(set.classes(), 2);
  EXPECT_EQ(splits.test.size(), 0);
  const float unit = static_cast<float>(
      2 / std::sqrt(8.0 / 3));  // mean 3 of 1, 3, 5; variance 8/3 of the population
  const std::vector<float> expected{-unit, 0, 1, 0, 1, 0, 0, 0, 0, unit, 0, 1};
  ASSERT_EQ(set.as<FeatureSamples>().values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_FLOAT_EQ(set.as<FeatureSamples>().values[i], expected[i]) << i;
}

TEST_F(CsvFiles, ManyTextValuesBecomeStandardisedPositionsAndConstantsZero) {
  std::string text;
  for (int i = 0; i < 34; ++i)
    text += std::string(1, static_cast<char>('A' + i / 2)) + ",7,+.5e1," +
            (i % 2 == 0 ? "2" : "10") + "\n";
  options_.csv.test_share = 0;
  const Dataset set = load(text).train;
  EXPECT_EQ(set.shape()[2], 3);  // 17 letters are more than one-hot takes
  EXPECT_FLOAT_EQ(
      set.as<FeatureSamples>().values[0],
      static_cast<float>(-8 / std::sqrt(24.0)));  // positions 0..16, variance (17^2 - 1) / 12
  EXPECT_EQ(set.as<FeatureSamples>().values[1], 0);
  EXPECT_EQ(set.as<FeatureSamples>().values[2], 0);
  EXPECT_EQ(set.as<ClassLabels>().ids[0], 0);  // class 2 comes before class 10
  EXPECT_EQ(set.as<ClassLabels>().ids[1], 1);
}

TEST_F(CsvFiles, HeadersAreFoundOrGiven) {
  options_.csv.test_share = 0;
  EXPECT_EQ(load("1,2,a\n3,4,b\n").train.size(), 2);
  EXPECT_EQ(load("x,y,z\n3,4,b\n5,6,c\n").train.size(), 2);
  EXPECT_EQ(load("x,z\nu,b\nv,c\n").train.size(), 3);  // all text: nothing tells
  options_.csv.header = CsvHeader::kYes;
  EXPECT_EQ(load("x,z\nu,b\nv,c\n").train.size(), 2);
  options_.csv.header = CsvHeader::kNo;
  EXPECT_EQ(load("x,y,z\n3,4,b\n5,6,c\n").train.size(), 3);
  options_.csv.header = CsvHeader::kAuto;
  options_.csv.label_column = "x";
  EXPECT_EQ(load("x,z\nu,b\nv,c\n").train.size(), 2);
  options_.csv.label_column = "2";
  EXPECT_EQ(load("1,2\n3,4\n5,2\n").train.size(), 3);  // the 2 in row 1 is no name
}

TEST_F(CsvFiles, AFileMayStandInThePlaceOfTheFolder) {
  load("1,a\n2,b\n3,a\n");
  options_.csv.annotations.clear();
  options_.directory = folder_ / "set.csv";
  EXPECT_EQ(read_csv_splits(options_).train.classes(), 2);
}

TEST_F(CsvFiles, TheLabelColumnIsFoundByNameAndNumber) {
  options_.csv.test_share = 0;
  const std::string text = "kind,size\nx,1\ny,2\ny,3\n";
  for (const char* wanted : {"kind", "1"}) {
    options_.csv.label_column = wanted;
    EXPECT_EQ(load(text).train.as<ClassLabels>().ids, (std::vector<std::int32_t>{0, 1, 1}));
  }
  options_.csv.label_column = "knd";
  expect_complaint<ConfigError>(text, {"set.csv", "'knd'", "did you mean 'kind'", "1 to 2"});
  options_.csv.label_column = "3";
  expect_complaint<ConfigError>(text, {"'3'", "1 to 2"});
  options_.csv.label_column = "kind";
  expect_complaint<ConfigError>("kind,kind\n1,2\n", {"several columns"});
}

TEST_F(CsvFiles, PartsAreDrawnBySeedOfEachClassAndMeasuredInTraining) {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += std::to_string(i) + "," + (i < 60 ? "a" : i < 99 ? "b" : "c") + "\n";
  const DatasetSplits first = load(text), again = load(text);
  EXPECT_EQ(first.train.as<FeatureSamples>().values, again.train.as<FeatureSamples>().values);
  EXPECT_EQ(first.test.as<FeatureSamples>().values, again.test.as<FeatureSamples>().values);
  std::vector<int> counts(3);
  for (const std::int32_t label : first.test.as<ClassLabels>().ids)
    ++counts[static_cast<std::size_t>(label)];
  EXPECT_EQ(counts, (std::vector<int>{
                        12, 8, 0}));  // a fifth of 60, 39 and 1; the only c stays for training
  double sum = 0, squares = 0;
  for (const float value : first.train.as<FeatureSamples>().values)
    sum += value, squares += value * value;
  EXPECT_NEAR(sum, 0, 1e-4);
  EXPECT_NEAR(squares / static_cast<double>(first.train.size()), 1, 1e-5);
  std::multiset<float> all(first.train.as<FeatureSamples>().values.begin(),
                           first.train.as<FeatureSamples>().values.end());
  all.insert(first.test.as<FeatureSamples>().values.begin(),
             first.test.as<FeatureSamples>().values.end());
  EXPECT_EQ(std::set<float>(all.begin(), all.end()).size(),
            100u);  // every row is in exactly one part
  EXPECT_TRUE(std::is_sorted(first.train.as<FeatureSamples>().values.begin(),
                             first.train.as<FeatureSamples>().values.end()));
  options_.seed = 1;
  EXPECT_NE(load(text).test.as<FeatureSamples>().values, first.test.as<FeatureSamples>().values);
}

TEST_F(CsvFiles, ATextValueThatOnlyTheTestPartHasIsAllZero) {
  std::string text;
  for (int i = 0; i < 10; ++i)
    text += std::string(i == 4 ? "rare" : "common") + "," + (i % 2 == 0 ? "x" : "y") + "\n";
  for (options_.seed = 0; options_.seed < 40; ++options_.seed) {
    const DatasetSplits splits = load(text);
    if (splits.train.shape()[2] == 2) continue;
    ASSERT_EQ(splits.train.shape()[2], 1);
    float sum = 0;
    for (const float value : splits.test.as<FeatureSamples>().values) sum += value;
    EXPECT_EQ(sum, 1);  // of two test rows one is the common value
    return;
  }
  FAIL() << "no seed has put the rare value into the test part";
}

TEST_F(CsvFiles, WrongContentIsNamed) {
  expect_complaint("1\n2\n", {"set.csv", "1 column"});
  expect_complaint("a b\n1 2\n", {"1 column", "separated by ','", "row 1 is 'a b'"});
  expect_complaint("1,a\n2,\n3,b\n", {"set.csv, row 2 (line 2)", "no label", "column 2"});
  expect_complaint("1,a\n2,a\n", {"label column 2 has 1 different"});
  expect_complaint("1,a\n", {"1 rows of data"});
  expect_complaint("x,y\n1,a\n", {"1 rows of data"});
  expect_complaint("1,a\ninf,b\n", {"row 2", "'inf'", "column 1"});
  expect_complaint("1,a\n-1e39,b\n", {"row 2", "'-1e39'", "column 1"});
  std::string distinct;
  for (int i = 0; i < 50; ++i) distinct += "1," + std::to_string(i) + "\n";
  expect_complaint(distinct, {"50 different values in 50 rows", "--label-column"});
}

TEST_F(CsvFiles, TargetsAreNumbersStandardisedByTheTrainingRows) {
  options_.task = io::Task::kRegression;
  std::string text = "size,price\n";
  for (int i = 0; i < 50; ++i)
    text += std::to_string(i) + "," + std::to_string(1000 + i * i) + ".25\n";
  const DatasetSplits splits = load(text);
  EXPECT_EQ(splits.train.size(), 40);
  EXPECT_EQ(splits.test.size(), 10);
  EXPECT_EQ(splits.train.find<ClassLabels>(), nullptr);
  EXPECT_EQ(splits.train.classes(), 1);
  ASSERT_TRUE(splits.train.target() && splits.test.target());
  EXPECT_EQ(splits.train.target()->name, "price");
  EXPECT_EQ(splits.test.target()->mean, splits.train.target()->mean);
  double sum = 0, squares = 0;
  for (const float value : splits.train.as<TargetValues>().values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  EXPECT_NEAR(sum, 0, 1e-4);
  EXPECT_NEAR(squares / 40, 1, 1e-6);
  // Row by row: the feature is the same for both scales.
  const CsvColumn& size = splits.coding->columns[0];
  for (std::size_t i = 0; i < splits.test.as<TargetValues>().values.size(); ++i) {
    const double x = size.mean + size.deviation * static_cast<double>(
                                                      splits.test.as<FeatureSamples>().values[i]);
    EXPECT_NEAR(splits.test.target()->in_unit(
                    static_cast<double>(splits.test.as<TargetValues>().values[i])),
                1000.25 + x * x, 0.05);
  }
  EXPECT_CONTAINS(splits.columns, "target price (mean ");

  options_.limit = 12;
  const DatasetSplits limited = load(text);
  EXPECT_EQ(limited.train.size(), 12);
  EXPECT_EQ(limited.train.target()->mean, splits.train.target()->mean);
  EXPECT_NE(data_digest(limited.train).text, data_digest(splits.train).text);
}

TEST_F(CsvFiles, LargeNumbersThatDifferLittleAreNotConstant) {
  const auto text = [](const std::string& end) {
    std::string rows = "time,price\n";
    for (int i = 0; i < 40; ++i)
      rows += std::to_string(999'999'999'999'900 + 5 * i) + "," + std::to_string(1 + i % 3) + end;
    return rows;
  };
  const CsvColumn time = load(text("\n")).coding->columns[0];
  EXPECT_FALSE(time.constant);
  EXPECT_NEAR(time.mean, 999'999'999'999'997.5, 20);
  EXPECT_NEAR(time.deviation, 57.7, 5);
  options_.task = io::Task::kRegression;
  options_.csv.label_column = "time";
  EXPECT_NEAR(load(text("\n")).train.target()->deviation, 57.7, 5);
  // Equal but for their last bits.
  const std::vector<double> equal{0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2};
  EXPECT_TRUE(spread_of(equal).constant);
}

TEST_F(CsvFiles, WrongTargetsAreNamed) {
  options_.task = io::Task::kRegression;
  expect_complaint("a,y\n1,2\n2,x\n", {"set.csv, row 3 (line 3)", "'x' in y", "a number"});
  expect_complaint("a,y\n1,2\n2,\n", {"row 3", "'' in y"});
  expect_complaint("a,y\n1,nan\n2,3\n", {"row 2", "'nan' in y"});
  expect_complaint("a,y\n1,7\n2,7\n3,7\n", {"set.csv: y, target, 7 15 digits"});
}

TEST_F(CsvFiles, SeveralLabelsAreColumnsOfZerosAndOnes) {
  options_.task = io::Task::kMultiLabel;
  options_.csv.label_column = "spam, 2";
  options_.csv.test_share = 0;
  const DatasetSplits splits = load("a,big,spam\n1.5,0,1\n2,,1.0\n4,1,NA\n");
  EXPECT_EQ(splits.train.class_names(), (std::vector<std::string>{"spam", "big"}));
  EXPECT_EQ(splits.train.shape()[2], 1) << "labels are no features";
  const auto& labels = splits.train.as<MultiLabels>();
  ASSERT_EQ(labels.values.size(), 6u);
  EXPECT_EQ(labels.values[0], 1);
  EXPECT_EQ(labels.values[1], 0);
  EXPECT_EQ(labels.values[2], 1);
  EXPECT_TRUE(std::isnan(labels.values[3]));
  EXPECT_TRUE(std::isnan(labels.values[4]));
  EXPECT_EQ(labels.values[5], 1);
  EXPECT_EQ(labels.known(), 4);
  EXPECT_EQ(splits.train.loss_weights(), (std::vector<double>{2, 1, 1}));
  EXPECT_TRUE(splits.columns.find("labels of 0 or 1: spam, big") != std::string::npos)
      << splits.columns;
}

TEST_F(CsvFiles, WrongLabelsOfSeveralAreNamed) {
  options_.task = io::Task::kMultiLabel;
  options_.csv.label_column = "u,v";
  expect_complaint("a,u,v\n1,0,1\n2,yes,0\n",
                   {"set.csv, row 3 (line 3)", "'yes' in column 2 ('u')", "expected 0 or 1"});
  expect_complaint("a,u,v\n1,0,2\n2,1,0\n", {"row 2", "'2' in column 3 ('v')"});
  expect_complaint("a,u,v\n1,0,0.5\n2,1,0\n", {"row 2", "'0.5' in column 3 ('v')"});
}

TEST_F(CsvFiles, LabelsThatAreAllUnknownAreRefused) {
  options_.task = io::Task::kMultiLabel;
  options_.csv.label_column = "u,v";
  options_.csv.test_share = 0;
  expect_complaint("a,u,v\n1,,NA\n2,,\n3,NA,\n",
                   {"set.csv: labels 3 training samples unknown, 0 1"});
  EXPECT_EQ(load("a,u,v\n1,,NA\n2,,1\n3,NA,\n").train.as<MultiLabels>().known(), 1);
}

TEST_F(CsvFiles, ChangedBytesNeverDoHarm) {
  std::string original = "kind,size,colour,weight\n";
  for (int i = 0; i < 12; ++i)
    original += (i % 2 ? "x," : "\"y\",") + std::to_string(i) + ",\"red, or \"\"blue\"\"\"," +
                (i % 5 ? "1.5" : "NA") + "\r\n";
  options_.csv.label_column = "1";
  SplitMix random(4, 4);
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    std::string file = original;
    for (std::uint32_t i = 0; i <= random.below(3); ++i) {
      const std::size_t at = random.below(static_cast<std::uint32_t>(file.size()));
      file[at] = random.below(2) == 0 ? static_cast<char>(random.below(256))
                                      : ",\"\n\r \0"[random.below(6)];
    }
    try {
      const DatasetSplits splits = load(file);
      ASSERT_EQ(splits.train.as<FeatureSamples>().values.size(),
                splits.train.as<ClassLabels>().ids.size() *
                    static_cast<std::size_t>(splits.train.shape()[2]));
      for (const float value : splits.train.as<FeatureSamples>().values)
        ASSERT_TRUE(std::isfinite(value)) << file;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
  EXPECT_LT(refused, 570);
}

TEST_F(CsvFiles, TheFileIsNamedOrTheOnlyOne) {
  test_support::write_text(folder_ / "other.csv", "1,a\n2,b\n3,a\n4,b\n");
  expect_complaint<ConfigError>("1,a\n2,b\n", {"2 files *.csv", "--annotations"});
  options_.csv.annotations = folder_ / "other.csv";
  EXPECT_EQ(load("1,a\n2,b\n").train.name, "other.csv");
  options_.csv.annotations = folder_ / "none.csv";
  expect_complaint<MissingFileError>("1,a\n2,b\n", {"none.csv"});
}

}  // namespace
}  // namespace io
