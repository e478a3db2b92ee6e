// What is told about the columns of a CSV file, and which of them are used.
#include "io/data/readers/csv/csv_report.h"

#include <gtest/gtest.h>

#include "tests/io/data/sources/dataset_fixture.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

class CsvReport : public dataset_fixture::CsvFile {
 protected:
  CsvReport() { options_.csv.test_share = 0; }

  std::string complaint(const std::string& text) {
    return test_support::error_or<Error>([&] { load(text); }, "none");
  }
  // `count` rows "VALUE(i),i % 3,x or y" below "VALUE's name,size,kind".
  template <typename Value>
  std::vector<std::string> warnings(const std::string& name, int count, const Value& value) {
    std::string text = name + ";size;kind\n";
    for (int i = 0; i < count; ++i)
      text += value(i) + ";" + std::to_string(i % 3) + ";" + (i % 2 == 0 ? "x" : "y") + "\n";
    return load(text).warnings;
  }
};

TEST_F(CsvReport, OneLineSaysWhatEachColumnBecame) {
  std::string text = "mass,sex,name,same,id,kind\n";
  for (int i = 0; i < 34; ++i)
    text += std::to_string(i / 2) + (i % 2 == 0 ? ".5,m," : ",f,") + "n" + std::to_string(i / 2) +
            ",7," + std::to_string(i) + (i % 2 == 0 ? ",x\n" : ",y\n");
  options_.csv.ignored_columns = "id";
  EXPECT_VALUES(load(text).columns,
                "set.csv: label kind (2 classes); numbers: mass; categories: sex (2 values); text "
                "order: name (17 values); 0, same; out: id (by option)");
  options_.csv.header = CsvHeader::kNo;
  options_.csv.ignored_columns = "";
  EXPECT_EQ(load("1;a\n2;b\n").columns,
            "set.csv: label column 2 (2 classes); numbers: column 1; separated by ';'");
}

// Identifiers of 64 bits are different texts, but the same double.
TEST_F(CsvReport, NumbersThatDifferOnlyAfter15DigitsAreNamed) {
  std::string whole = "id,year,kind\n", decimals = "x,y,kind\n";
  for (int i = 0; i < 8; ++i) {
    const std::string kind = i % 2 == 0 ? ",x\n" : ",y\n";
    whole += "123456789012345670" + std::to_string(i) + ",2023" + kind;
    decimals += (i % 2 == 0 ? "0.3," : "0.30000000000000004,") + std::to_string(i) + kind;
  }
  const DatasetSplits ids = load(whole);
  EXPECT_VALUES(ids.columns, "0 year; 0 15 digits: id");
  EXPECT_EQ(ids.train.as<FeatureSamples>().values, std::vector<float>(16, 0.0f));
  EXPECT_VALUES(load(decimals).columns, "numbers: y; 0, 15 digits: x");
  options_.task = Task::kRegression;
  options_.csv.label_column = "id";
  EXPECT_VALUES(complaint(whole), "set.csv: id, target, 15 digits");
}

TEST_F(CsvReport, ALongListIsCut) {
  std::string header, row;
  for (int i = 0; i < 50; ++i) {
    header += "c" + std::to_string(i) + ",";
    row += std::to_string(i) + ",";
  }
  const std::string text = load(header + "kind\n" + row + "x\n" + row + "y\n").columns;
  EXPECT_CONTAINS(text, "c19 and 30 more");
}

TEST_F(CsvReport, ColumnsAreChosenByNameAndNumber) {
  const std::string text = "id,size,mass,kind\n1,2,3,x\n4,5,6,y\n";
  EXPECT_EQ(load(text).train.shape()[2], 3);
  options_.csv.ignored_columns = "id, 3";
  EXPECT_EQ(load(text).train.shape()[2], 1);
  options_.csv.ignored_columns = "";
  options_.csv.columns = "size,mass";
  EXPECT_EQ(load(text).train.shape()[2], 2);
  options_.csv.columns = "size,kind";  // the label needs no mention, but may have it
  EXPECT_EQ(load(text).train.shape()[2], 1);
}

TEST_F(CsvReport, WrongChoicesAreNamed) {
  const std::string text = "id,size,kind\n1,2,x\n4,5,y\n";
  options_.csv.ignored_columns = "sizes";
  EXPECT_CONTAINS(complaint(text), "no column 'sizes': did you mean 'size'?");
  options_.csv.ignored_columns = "kind";
  EXPECT_CONTAINS(complaint(text), "--ignore-columns names kind, which is the label");
  options_.csv.ignored_columns = "1,2";
  EXPECT_CONTAINS(complaint(text), "no column besides the label is left");
  options_.csv.ignored_columns = "";
  options_.csv.columns = "id,,size";
  EXPECT_CONTAINS(complaint(text), "no column ''");
}

// Another column would be rejected as well, or change nothing.
TEST_F(CsvReport, OnlyColumnsThatAreNotInUseAreProposed) {
  const std::string text = "id,size,sizes,kind\n1,2,3,x\n4,5,6,y\n",
                    other = ": did you mean 'sizes'?", none = "' (the header";
  options_.csv.columns = "knd";
  EXPECT_CONTAINS(complaint(text), "no column 'knd" + none);
  options_.csv.columns = "size,siz";
  EXPECT_CONTAINS(complaint(text), "no column 'siz'" + other);
  options_.csv.columns = "siz";
  EXPECT_CONTAINS(complaint("size,size,kind\n1,2,x\n4,5,y\n"), ": did you mean 'size.1'?");
  options_.csv.columns = "";
  options_.csv.ignored_columns = "knd";
  EXPECT_CONTAINS(complaint(text), "no column 'knd" + none);
  options_.csv.ignored_columns = "2";
  options_.csv.label_column = "siz";
  EXPECT_CONTAINS(complaint(text), "no label column 'siz'" + other);
  options_.csv.ignored_columns = "";
  options_.task = Task::kMultiLabel;
  options_.csv.label_column = "size,siz";
  EXPECT_CONTAINS(complaint(text), "no label column 'siz'" + other);
}

TEST_F(CsvReport, AFileThatCannotBeCutSaysWhatWasSeen) {
  const std::string found = complaint("a b c\n1 2 3\n");
  EXPECT_CONTAINS(found, "found 1 column");
  EXPECT_CONTAINS(found, "row 1 is 'a b c'");
  EXPECT_CONTAINS(found, "--separator space cuts at blanks");
  EXPECT_CONTAINS(complaint("a:b\n1:2\n"), "name another separator with --separator");
  options_.csv.separator = ",";
  EXPECT_CONTAINS(complaint("a;b\n1;2\n"), "separated by ','");
  options_.csv.separator = ";";
  EXPECT_VALUES(complaint("a;b\n1;2;3\n"), "3 fields 2 row 1 ';'");
}

TEST_F(CsvReport, IdentifiersAreWarnedOf) {
  const auto number = [](int i) { return std::to_string(1000 + 7 * i); };
  const auto word = [](int i) { return "p" + std::to_string(i); };
  EXPECT_LINES(warnings("id", 20, number), "set.csv: id identifier --ignore-columns id");
  EXPECT_EQ(warnings("name", 20, word).size(), 1u);
  EXPECT_CONTAINS(warnings("the key", 20, word).at(0), "--ignore-columns 1");
  // Too few rows to tell, repeated values, measurements.
  EXPECT_TRUE(warnings("id", 19, number).empty());
  EXPECT_TRUE(warnings("id", 40, [](int i) { return std::to_string(i / 2); }).empty());
  EXPECT_TRUE(warnings("id", 40, [](int i) { return std::to_string(i) + ".25"; }).empty());
  options_.csv.ignored_columns = "id";
  EXPECT_TRUE(warnings("id", 20, number).empty());
}

TEST_F(CsvReport, DatesAndDecimalCommasAreWarnedOf) {
  const auto day = [](int i) { return std::to_string(10 + i % 7); };
  for (const std::string form : {"2024-05-", "2024/5/", "202405", "5/", "2024.05."}) {
    const std::vector<std::string> lines =
        warnings("when", 12, [&](int i) { return form + day(i) + (form == "5/" ? "/24" : ""); });
    ASSERT_EQ(lines.size(), 1u) << form;
    EXPECT_EQ(lines[0].find("set.csv: when looks like a date"), 0u) << lines[0];
  }
  EXPECT_EQ(warnings("when", 12, [&](int i) { return day(i) + ".05.2024 12:30"; }).size(), 1u);
  EXPECT_TRUE(warnings("mass", 12, [&](int i) { return "2024" + day(i); }).empty());
  EXPECT_TRUE(warnings("version", 12, [&](int i) { return "1.40." + day(i); }).empty());
  const std::vector<std::string> commas =
      warnings("price", 12, [&](int i) { return day(i) + ",5"; });
  ASSERT_EQ(commas.size(), 1u);
  EXPECT_VALUES(commas[0],
                "set.csv: comma (--csv-decimal point column 1 ('price') (row 2: '10,5')");
}

}  // namespace
}  // namespace io
