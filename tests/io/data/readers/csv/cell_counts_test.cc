// Lines about cells of later tables: missing values, and digits in groups that may be decimals.
#include "io/data/readers/csv/cell_counts.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset/sample_coding.h"
#include "io/data/sources/sample_inputs.h"
#include "tests/io/data/sources/dataset_fixture.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

using Lines = std::vector<std::string>;

class CellCountsOfTables : public dataset_fixture::CsvFile {
 protected:
  // Returns the lines of predict, and expects those of eval to be the same.
  Lines lines_of(const std::string& text) {
    options_.coding = nullptr;
    options_.parts = Parts::kSplit;
    const DatasetSplits trained = load(training_);
    write("new.csv", text);
    const std::string path = folder_ / "new.csv";
    const auto stream = open_samples({path}, trained);
    SampleBlock block;
    stream->fill(1000, Wanted::kSamples, block);
    options_.coding = std::make_shared<SampleCoding>(SampleCoding{
        .like = trained.train.like(), .table = trained.coding, .source = "run/step-8.ckpt"});
    options_.parts = Parts::kHoldOut;
    options_.csv.annotations = path;
    EXPECT_EQ(DatasetFiles::load().unknown, stream->unknown());
    options_.csv.annotations = "";
    remove("new.csv");
    Lines lines = stream->unknown();
    for (std::string& line : lines) {
      EXPECT_TRUE(line.starts_with(path + ": ")) << line;
      line.erase(0, path.size() + 2);
    }
    return lines;
  }

  std::string training_ =
      "a,color,class\n1.5,red,x\n2.25,green,y\n3.5,red,x\n4.75,green,y\n5.5,red,x\n0.25,green,y\n";
};

// A program that turns a column into decimals also changes the marker.
TEST_F(CellCountsOfTables, NumbersThatEqualAMarkerAreMissing) {
  options_.csv.missing = "auto,-999";
  training_ = "a,b,class\n1.5,2,x\n-999.0,1,y\n3.5,-999,x\n4.75,5,y\n5.5,7,x\n0.25,9,y\n";
  options_.csv.test_share = 0;
  const DatasetSplits trained = load(training_);
  for (const CsvColumn& column : trained.coding->columns) EXPECT_GT(column.mean, 0);
  EXPECT_EQ(trained.warnings,
            (Lines{"set.csv: read as missing: column 1 ('a'): 1 of 6 cells is not a number (row "
                   "3: '-999.0'); column 2 ('b'): 1 of 6 cells is not a number (row 4: '-999')"}));
  EXPECT_EQ(lines_of("a,b,class\n-999,2,x\n1.5,-999.00,y\n-999.0,1,y\n"),
            (Lines{"2 of 3 rows have no value in a, which counts as its mean (first: row 2: "
                   "'-999')",
                   "1 of 3 rows have no value in b, which counts as its mean (first: row 3: "
                   "'-999.00')"}));
  options_.coding = nullptr;
  options_.parts = Parts::kSplit;
  // Texts are compared as they are.
  training_ = "a,class\n-999.0,x\nred,y\n-999.0,x\nred,y\n";
  EXPECT_EQ(load(training_).coding->columns[0].categories, (Lines{"-999.0", "red"}));
  options_.task = Task::kMultiLabel;
  options_.csv.label_column = "u,v";
  EXPECT_EQ(load("a,u,v\n1,0,-999.0\n2,1,0\n").train.as<MultiLabels>().known(), 3);
}

// Training has not learned a weight for other numbers.
TEST_F(CellCountsOfTables, AConstantColumnIsZeroWhateverItsNumber) {
  training_ = "a,year,class\n1.5,2023,x\n2.25,2023,y\n3.5,,x\n4.75,2023,y\n";
  EXPECT_EQ(lines_of("a,year,class\n1.5,2023,x\n1.5,2023.0,y\n"), Lines{});
  EXPECT_LINES(lines_of("a,year,class\n1.5,2023,x\n1.5,2024,y\n1.5,2100,x\n"),
               "2 of 3 rows year '2024', '2100' row 3");
  options_.coding = nullptr;
  options_.parts = Parts::kSplit;
  const DatasetSplits trained = load(training_);
  write("new.csv", "a,year\n1.5,2023\n1.5,2100\n1.5,\n");
  SampleBlock block;
  open_samples({folder_ / "new.csv"}, trained)->fill(1000, Wanted::kSamples, block);
  const std::vector<float>& values = std::get<FeatureSamples>(block.samples).values;
  ASSERT_EQ(values.size(), 6u);
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(values[2 * row], values[0]);
    EXPECT_EQ(values[2 * row + 1], 0.0f);
  }
}

TEST_F(CellCountsOfTables, MissingValuesAreCountedByColumn) {
  EXPECT_EQ(lines_of("a,color,class\n1.5,red,x\n2.5,green,y\n"), Lines{});
  EXPECT_LINES(lines_of("a,color,class\n1.5,red,x\n,,y\nNA,green,x\n"),
               "2 of 3 rows no value in a, mean row 3",
               "1 of 3 rows no value in color, categories row 3");
  EXPECT_LINES(lines_of("a,color,class\nNA,red,x\n1,green,y\n"),
               "1 of 2 rows no value in a, mean row 2: 'NA'");
}

// A point and a comma are each a decimal sign in one table and a sign of groups in the other.
TEST_F(CellCountsOfTables, GroupsOfDigitsAreNamedForTheyMayBeDecimals) {
  EXPECT_LINES(lines_of("a;color;class\n2.5;red;x\n90,818;green;y\n91,257;red;x\n"),
               "2 of 3 rows in a, point row 3 '90,818'");
  training_ =
      "a;color;class\n1,5;red;x\n2,25;green;y\n3,5;red;x\n4,75;green;y\n5,5;red;x\n0,25;green;y\n";
  EXPECT_LINES(lines_of("a,color,class\n90.818,red,x\n1,green,y\n"),
               "1 of 2 rows in a, comma row 2 '90.818'");
}

TEST_F(CellCountsOfTables, GroupsOfDigitsInATargetAreNamed) {
  options_.task = Task::kRegression;
  training_ = "a,price\n1.5,10.5\n2.25,20.25\n3.5,30\n4.75,40\n5.5,50\n0.25,5\n";
  const std::string path = folder_ / "new.csv";
  const DatasetSplits trained = load(training_);
  write("new.csv", "a;price\n1.5;90,818\n2.5;7\n");
  options_.coding = std::make_shared<SampleCoding>(SampleCoding{
      .like = trained.train.like(), .table = trained.coding, .source = "run/step-8.ckpt"});
  options_.parts = Parts::kHoldOut;
  options_.csv.annotations = path;
  EXPECT_LINES(DatasetFiles::load().unknown,
               path + ": 1 of 2 rows groups price, point row 2: '90,818'");
}

}  // namespace
}  // namespace io
