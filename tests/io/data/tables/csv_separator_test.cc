// Fields that other characters than commas separate.
#include "io/data/tables/csv_separator.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/tables/csv_table.h"

namespace io {
namespace {

char found(const std::string& text) { return csv_separator("auto", text); }

TEST(CsvSeparator, AutoTakesWhatCutsAllRowsAlike) {
  EXPECT_EQ(found("a,b\n1,2\n"), ',');
  EXPECT_EQ(found("a;b\r\n1;2\r\n"), ';');
  EXPECT_EQ(found("a\tb\n1\t\n"), '\t');
  EXPECT_EQ(found("a|b\n1|2"), '|');
  EXPECT_EQ(found("size;kind\n1,5;x\n2,5;y\n"), ';');  // decimal commas
  EXPECT_EQ(found("note;kind\n\"one; two\";x\n\n\"a \"\"b\"\"\";y\n"), ';');
  EXPECT_EQ(found("a,b\n1;2,3\n4,5\n"), ',');
}

TEST(CsvSeparator, AutoTakesWhatMakesNumbersOfTheFieldsWhereSeveralFit) {
  EXPECT_EQ(found("22,82;4,31;50,00\n15,40;6,08;36,90\n"), ';');
  EXPECT_EQ(found("22,82\t4,31\tja\n15,40\t6,08\tnein\n"), '\t');
  EXPECT_EQ(found("22,76;7,89;p;ja\n26,57;6,86;s;ja\n"), ';');
  EXPECT_EQ(found("1,2,a;b\n3,4,c;d\n"), ',');
  EXPECT_EQ(found("1,\"2,5;3\",x|y\n4,\"5,5;3\",z|y\n"), ',');
  EXPECT_EQ(found("a,b;c\nd,e;f\n"), ',');
  EXPECT_EQ(also_fitting("auto", "22,82;4,31\n15,40;6,08\n"), "','");
  EXPECT_EQ(also_fitting("auto", "1,2\n3,4\n"), "");
  EXPECT_EQ(also_fitting(";", "22,82;4,31\n15,40;6,08\n"), "");
}

TEST(CsvSeparator, AutoTakesTheMostFrequentOneOrACommaWhereNoneFits) {
  EXPECT_EQ(found("a;b;c\n1;2\n"), ';');
  EXPECT_EQ(found("a,b,c\n1,2\n"), ',');
  EXPECT_EQ(found("alone\n"), ',');
  EXPECT_EQ(found(""), ',');
}

TEST(CsvSeparator, AnyOtherIsNamed) {
  EXPECT_EQ(csv_separator("tab", "a,b"), '\t');
  EXPECT_EQ(csv_separator(";", "a,b"), ';');
  EXPECT_EQ(csv_separator(":", "a,b"), ':');
  for (const char* wrong : {"", "x", "1", "\"", "  ", "..", "semicolon", "\n"})
    EXPECT_THROW(csv_separator(wrong, "a,b"), ConfigError) << wrong;
}

TEST(CsvTable, IsCutAtTheSeparatorGiven) {
  const std::string text = " a ;\"b;c\"\n1,5;\n";
  const CsvTable table({text.begin(), text.end()}, "t.csv", ';');
  ASSERT_EQ(table.columns(), 2u);
  EXPECT_EQ(table.field(0, 0), "a");
  EXPECT_EQ(table.field(0, 1), "b;c");
  EXPECT_EQ(table.field(1, 0), "1,5");
  EXPECT_EQ(table.field(1, 1), "");
}

TEST(CsvSeparator, BlanksSeparateWhereRWritesThem) {
  EXPECT_EQ(csv_separator("space", "a,b"), ' ');
  EXPECT_EQ(csv_separator(" ", "a,b"), ' ');
  EXPECT_EQ(found("\"x\" \"my y\"\n\"1\" 1,5 \"a b\"\n\"2\" 2,5 \"c\"\n"), ' ');
  EXPECT_EQ(found("x y label\n\"1\" 1.5 2 a\n\"2\" 2.5 3 b\n"), ' ');
  EXPECT_EQ(found("x y\n1 2\n3 4\n"), ',');  // may be texts of two words
  EXPECT_EQ(found("\"x y\"\n\"red apple\"\n\"green pear\"\n"), ',');
  EXPECT_EQ(found("\"x\" y\n\"1\" 2\n\"3\" 4 5\n"), ',');  // rows of unequal length
}

TEST(CsvTable, BlanksOneOrMoreSeparate) {
  const std::string text = "  a  b\tc \n\"1 2\"   3 \"4\"\n\n5 6 7  \r\n";
  const CsvTable table({text.begin(), text.end()}, "t.csv", ' ');
  ASSERT_EQ(table.columns(), 3u);
  ASSERT_EQ(table.rows(), 3u);
  const std::vector<std::string> fields{"a", "b", "c", "1 2", "3", "4", "5", "6", "7"};
  for (std::size_t i = 0; i < fields.size(); ++i) EXPECT_EQ(table.field(i / 3, i % 3), fields[i]);
  const std::string wrong = "a b\n\"1\"2 3\n";
  EXPECT_THROW(CsvTable({wrong.begin(), wrong.end()}, "t.csv", ' '), DataError);
}

TEST(CsvTable, TabsAreNoBlanksWhereTheySeparate) {
  const std::string text = "a\t\tb\n\t\t\n";
  const CsvTable table({text.begin(), text.end()}, "t.csv", '\t');
  EXPECT_EQ(table.rows(), 2u);
  EXPECT_EQ(table.columns(), 3u);
  EXPECT_EQ(table.field(0, 2), "b");
}

}  // namespace
}  // namespace io
