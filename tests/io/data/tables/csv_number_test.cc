// Numbers as tables have them, and texts that stand for no value.
#include "io/data/tables/csv_number.h"

#include <gtest/gtest.h>

#include <string>

#include "io/base/files/io_error.h"
#include "io/data/tables/csv_missing.h"

namespace io {
namespace {

using Content = CsvNumber::Content;

void expect_number(const std::string& field, char decimal, double value) {
  const CsvNumber number = read_number(field, decimal);
  EXPECT_EQ(number.content, Content::kNumber) << field;
  EXPECT_EQ(number.value, value) << field;
}
void expect_text(const std::string& field, char decimal) {
  EXPECT_EQ(read_number(field, decimal).content, Content::kText) << field;
}

TEST(CsvNumber, WithADecimalPoint) {
  expect_number("1.5", '.', 1.5);
  expect_number("+.5e1", '.', 5);
  expect_number("-7", '.', -7);
  expect_number("1e-400", '.', 0);
  expect_number("1,234", '.', 1234);
  expect_number("-1,234,567.25", '.', -1234567.25);
  expect_number("1'234.5", '.', 1234.5);
  expect_number("1 234 567", '.', 1234567);
  expect_number(
      "12\xC2\xA0"
      "345",
      '.', 12345);
  expect_number(
      "12\xE2\x80\xAF"
      "345.5",
      '.', 12345.5);
  EXPECT_TRUE(read_number("1,234", '.').grouped);
  EXPECT_FALSE(read_number("1234", '.').grouped);
  for (const char* text : {"", "-", ".", "1,5", "1,23,456", "1,2345", "0,123", "012 345", "1,234,",
                           ",123", "1,234'567", "1.234.567", "12 kg", "1e", "x", "1-2", "+-1"})
    expect_text(text, '.');
}

TEST(CsvNumber, WithADecimalComma) {
  expect_number("1,5", ',', 1.5);
  expect_number("-,5", ',', -0.5);
  expect_number("7", ',', 7);
  expect_number("1.234", ',', 1234);
  expect_number("1.234.567,5e2", ',', 123456750);
  expect_number("1 234,5", ',', 1234.5);
  for (const char* text : {",", "1.5", "0.123", "1,5,5", "1,234.5", "24.12.2024"})
    expect_text(text, ',');
}

// Typesetting programs and web pages write U+2212 for the hyphen.
TEST(CsvNumber, TheMinusSignIsAMinus) {
  const std::string minus = "\xE2\x88\x92";
  expect_number(minus + "1.5", '.', -1.5);
  expect_number(minus + ".5e1", '.', -5);
  expect_number(minus + "1,234.5", '.', -1234.5);
  expect_number(minus + "1.234,5", ',', -1234.5);
  for (const char* rest : {"", "-1", "+1", "x",
                           "\xE2\x88\x92"
                           "1"})
    expect_text(minus + rest, '.');
  EXPECT_EQ(read_number(minus + "1e39", '.').content, Content::kTooLarge);
}

TEST(CsvNumber, BeyondFloatIsTooLarge) {
  for (const char* text : {"1e39", "-1e39", "inf", "nan", "1e999"})
    EXPECT_EQ(read_number(text, '.').content, Content::kTooLarge) << text;
}

TEST(CsvMissing, TheDefaultOnesAreThoseOfPandasAndAFewMore) {
  const CsvMissing missing;
  for (const char* marker :
       {"",       "#N/A",    "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan",
        "1.#IND", "1.#QNAN", "<NA>",     "N/A", "NA",      "NULL",     "NaN",  "None",
        "n/a",    "nan",     "null",     "-",   "\\N",     "?",        "Na"})
    EXPECT_TRUE(missing.has(marker)) << marker;
  for (const char* value : {"0", "none", "--", "NAN.", "x", "N", ".", "unknown"})
    EXPECT_FALSE(missing.has(value)) << value;
  EXPECT_FALSE(missing.has_numbers());
}

TEST(CsvMissing, TheOptionReplacesOrAddsTo) {
  const CsvMissing empty = CsvMissing::of_option("empty");
  EXPECT_TRUE(empty.has(""));
  EXPECT_FALSE(empty.has("NA"));
  const CsvMissing own = CsvMissing::of_option("-999, none");
  EXPECT_TRUE(own.has("-999") && own.has("none") && own.has(""));
  EXPECT_FALSE(own.has("NA"));
  EXPECT_TRUE(own.has_numbers());
  EXPECT_TRUE(CsvMissing::of_option("-999").has("-999.0", '.'));
  const CsvMissing more = CsvMissing::of_option("auto,-999");
  EXPECT_TRUE(more.has("-999") && more.has("NA"));
  EXPECT_THROW(CsvMissing::of_option(","), ConfigError);
  const CsvMissing before = CsvMissing::of_unstated();
  EXPECT_TRUE(before.has("nUlL") && before.has("?"));
  EXPECT_FALSE(before.has("None") || before.has("-"));
}

TEST(CsvMissing, EqualNumbersAreMissingInColumnsOfNumbers) {
  const CsvMissing missing = CsvMissing::of_option("-999,99.50,1.234");
  for (const char* field : {"-999.0", "-999", "-9.99e2", "99.5", "", "1.2340"})
    EXPECT_TRUE(missing.has(field, '.')) << field;
  for (const char* field : {"-999,0", "99,5", "1,234", "1.234"})  // the last one as it is written
    EXPECT_TRUE(missing.has(field, ',')) << field;
  for (const char* field : {"-998.5", "999", "x", "1,234", "-999 m"})
    EXPECT_FALSE(missing.has(field, '.')) << field;
  EXPECT_FALSE(missing.has("-999.0")) << "texts are compared byte for byte";
  EXPECT_FALSE(CsvMissing().has("-999", '.'));
}

}  // namespace
}  // namespace io
