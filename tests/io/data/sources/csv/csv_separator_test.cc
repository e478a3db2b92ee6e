// Fields that other characters than commas separate.
#include "io/data/sources/csv/csv_separator.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "io/data/sources/csv/csv_table.h"

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
  for (const char* wrong : {"", "x", "1", "\"", " ", "..", "semicolon", "\n"})
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

TEST(CsvTable, TabsAreNoBlanksWhereTheySeparate) {
  const std::string text = "a\t\tb\n\t\t\n";
  const CsvTable table({text.begin(), text.end()}, "t.csv", '\t');
  EXPECT_EQ(table.rows(), 2u);
  EXPECT_EQ(table.columns(), 3u);
  EXPECT_EQ(table.field(0, 2), "b");
}

}  // namespace
}  // namespace io
