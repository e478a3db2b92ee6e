// The same table in the dialects of the programs that write tables: the samples are the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/base/text/text_parts.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/readers/csv/csv_files.h"
#include "io/data/sources/dataset_registry.h"
#include "io/data/sources/sample_inputs.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

using Words = std::vector<std::string>;

// Two columns of numbers, one of them with missing values; one of texts; and a class.
struct Rows {
  Words names{"size", "weight", "note", "kind"};
  struct Row {
    double size = 0, weight = 0;
    bool known = true;  // the weight
    std::string note, kind;
  };
  std::vector<Row> rows;
};

Rows random_rows(std::uint64_t seed) {
  SplitMix random(seed, 1, 2);
  const Words notes{"plain",      "a, b",      "a; b",        "say \"x\"",
                    "two\nlines", "tab\there", "\xC3\xA4rger"};
  Rows table;
  const std::uint32_t count = 20 + random.below(60);
  for (std::uint32_t i = 0; i < count; ++i) {
    Rows::Row row;
    row.size = (static_cast<double>(random.below(400'000)) - 100'000) / 16;  // ends after 4 digits
    row.weight = random.below(3'000'000);
    row.known = random.below(8) != 0;
    row.note = notes[random.below(static_cast<std::uint32_t>(notes.size()))];
    row.kind = i < 2 ? (i == 0 ? "x" : "y") : random.below(2) == 0 ? "x" : "y";
    table.rows.push_back(row);
  }
  return table;
}

struct Dialect {
  const char* name;
  std::string separator = ",", line_end = "\n", missing = "";
  char decimal = '.';
  std::string groups = "";  // between digits of whole numbers
  enum class Index { kNone, kPandas, kR, kShortHeader } index = Index::kNone;
  bool quotes_all = false, mark = false, utf16 = false, names = true, named_by_excel = false;
};

class Writer {
 public:
  explicit Writer(const Dialect& dialect) : d_(dialect) {}

  std::string write(const Rows& table) {
    using Index = Dialect::Index;
    std::string text;
    if (d_.named_by_excel) text += "sep=" + d_.separator + d_.line_end;
    if (d_.names) {
      Words names;
      if (d_.index == Index::kPandas || d_.index == Index::kR) names.push_back(quoted_text(""));
      for (const std::string& name : table.names) names.push_back(quoted_text(name));
      text += line(names);
    }
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Rows::Row& row = table.rows[i];
      Words fields;
      if (d_.index == Index::kPandas) fields.push_back(std::to_string(i));
      if (d_.index == Index::kR || d_.index == Index::kShortHeader)
        fields.push_back("\"" + std::to_string(i + 1) + "\"");
      fields.push_back(number(row.size));
      fields.push_back(row.known ? number(row.weight) : d_.missing);
      fields.push_back(quoted_text(row.note));
      fields.push_back(quoted_text(row.kind));
      text += line(fields);
    }
    if (d_.mark) text.insert(0, "\xEF\xBB\xBF");
    return d_.utf16 ? as_utf16(text) : text;
  }

 private:
  std::string line(const Words& fields) const {
    std::string text;
    for (std::size_t i = 0; i < fields.size(); ++i) text += (i > 0 ? d_.separator : "") + fields[i];
    return text + d_.line_end;
  }

  std::string quoted_text(const std::string& text) const {
    if (!d_.quotes_all && text.find_first_of(d_.separator + "\"\n\r") == std::string::npos)
      return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
  }

  std::string number(double value) const {
    std::string text = base::shortest_text(value);
    if (text.find('e') != std::string::npos) {
      char plain[64];
      std::snprintf(plain, sizeof plain, "%.0f", value);
      text = plain;
    }
    std::size_t end = std::min(text.find('.'), text.size());
    if (end < text.size()) text[end] = d_.decimal;
    const std::size_t first = text[0] == '-' ? 1 : 0;
    for (; !d_.groups.empty() && end > first + 3; end -= 3) text.insert(end - 3, d_.groups);
    return text.find(d_.separator) == std::string::npos ? text : "\"" + text + "\"";
  }

  static std::string as_utf16(const std::string& text) {
    std::string wide = "\xFF\xFE";
    for (std::size_t i = 0; i < text.size(); ++i) {
      auto unit = static_cast<unsigned>(static_cast<unsigned char>(text[i]));
      if (unit >= 0xC0) unit = (unit & 0x1F) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F);
      wide += static_cast<char>(unit & 0xFF);
      wide += static_cast<char>(unit >> 8);
    }
    return wide;
  }

  const Dialect& d_;
};

std::vector<Dialect> dialects() {
  using Index = Dialect::Index;
  return {
      {.name = "pandas", .index = Index::kPandas},
      {.name = "pandas with NA", .missing = "NA"},
      {.name = "pandas for Europe", .separator = ";", .decimal = ','},
      {.name = "R write.csv", .missing = "NA", .index = Index::kR, .quotes_all = true},
      {.name = "R write.csv2",
       .separator = ";",
       .missing = "NA",
       .decimal = ',',
       .index = Index::kR,
       .quotes_all = true},
      {.name = "R write.table",
       .separator = ",",
       .missing = "NA",
       .index = Index::kShortHeader,
       .quotes_all = true},
      {.name = "R write.table by default",
       .separator = " ",
       .missing = "NA",
       .index = Index::kShortHeader,
       .quotes_all = true},
      {.name = "R write.table for Europe",
       .separator = " ",
       .missing = "NA",
       .decimal = ',',
       .index = Index::kShortHeader,
       .quotes_all = true},
      {.name = "Excel", .line_end = "\r\n", .missing = "#N/A", .mark = true},
      {.name = "German Excel",
       .separator = ";",
       .line_end = "\r\n",
       .missing = "-",
       .decimal = ',',
       .groups = ".",
       .mark = true},
      {.name = "Excel's Unicode text", .separator = "\t", .line_end = "\r\n", .utf16 = true},
      {.name = "Excel with sep=", .separator = ";", .line_end = "\r\n", .named_by_excel = true},
      {.name = "tabs and MySQL's NULL", .separator = "\t", .missing = "\\N"},
      {.name = "English groups", .missing = "None", .groups = ","},
      {.name = "Swiss groups", .separator = ";", .missing = "?", .groups = "'"},
      {.name = "French groups", .separator = ";", .decimal = ',', .groups = "\xC2\xA0"},
  };
}

class CsvDialects : public ::testing::Test {
 protected:
  DatasetSplits load(const std::string& text, const DatasetOptions& more = {}) {
    DatasetOptions options = more;
    options.name = "csv";
    options.csv.annotations = folder_ / "t.csv";
    test_support::write_text(options.csv.annotations, text);
    return load_dataset(options);
  }
  // The first `rows` samples of the file, as predict has them.
  std::vector<float> stream(const DatasetSplits& splits) {
    const auto samples = open_samples({folder_ / "t.csv"}, splits);
    SampleBlock block;
    samples->fill(1'000'000, Wanted::kSamples, block);
    return std::get<FeatureSamples>(block.samples).values;
  }
  static std::string joined(const Words& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(CsvDialects, RandomTablesGiveTheSameSamplesInTrainingAndPrediction) {
  DatasetOptions options;
  options.csv.test_share = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Rows rows = random_rows(seed);
    const Dialect plain{.name = "plain"};
    const DatasetSplits expected = load(Writer(plain).write(rows), options);
    ASSERT_EQ(expected.train.size(), static_cast<std::int64_t>(rows.rows.size()));
    for (const Dialect& dialect : dialects()) {
      const DatasetSplits read = load(Writer(dialect).write(rows), options);
      EXPECT_EQ(read.train.as<FeatureSamples>().values, expected.train.as<FeatureSamples>().values)
          << dialect.name << ", seed " << seed << ": " << read.columns << "\n"
          << joined(read.warnings);
      EXPECT_EQ(read.train.as<ClassLabels>().ids, expected.train.as<ClassLabels>().ids)
          << dialect.name;
      EXPECT_EQ(read.train.class_names(), (Words{"x", "y"})) << dialect.name;
      EXPECT_EQ(stream(read), read.train.as<FeatureSamples>().values)
          << dialect.name << ", seed " << seed;
    }
  }
}

TEST_F(CsvDialects, ATableOfCategoriesHasAHeaderIfItsFieldsOccurNowhereElse) {
  const Words values{"sunny", "rain", "hot", "cool", "yes", "no"};
  std::string rows;
  for (int i = 0; i < 14; ++i)
    rows += values[static_cast<std::size_t>(i % 2)] + "," +
            values[static_cast<std::size_t>(2 + i / 2 % 2)] + "," +
            values[static_cast<std::size_t>(4 + i / 3 % 2)] + "\n";
  const DatasetSplits named = load("outlook,temperature,play\n" + rows);
  EXPECT_EQ(named.train.class_names(), (Words{"no", "yes"}));
  EXPECT_VALUES(joined(named.warnings), "row 1 'outlook' 'temperature' 'play'");
  EXPECT_EQ(named.train.size() + named.test.size(), 14);
  const DatasetSplits unnamed = load(rows);
  EXPECT_EQ(unnamed.train.size() + unnamed.test.size(), 14);
  EXPECT_EQ(joined(unnamed.warnings), "");
}

TEST_F(CsvDialects, NumbersMayBeNames) {
  std::string rows;
  for (int i = 0; i < 30; ++i)
    rows += std::to_string(i) + ".25," + std::to_string(i % 7) + "," + std::to_string(i % 2) + "\n";
  EXPECT_EQ(load("0,1,2\n" + rows).coding->selection.header, (Words{"0", "1", "2"}));
  EXPECT_EQ(load("2019,2020,2\n" + rows).coding->selection.header, Words());
  EXPECT_EQ(load("3.5,1,1\n" + rows).coding->selection.header, Words());
  std::string years;
  for (int i = 0; i < 30; ++i)
    years += "c" + std::to_string(i % 5) + ",7" + std::to_string(i) + ",8" + std::to_string(i) +
             ",9" + std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  EXPECT_EQ(load("country,1990,1991,1992,rich\n" + years).coding->selection.header.size(), 5u);
  EXPECT_EQ(load("c1,71,72,73,1\n" + years).coding->selection.header.size(), 0u);
}

TEST_F(CsvDialects, NumbersAboveDecimalsOrClassesMayBeNames) {
  std::string decimals, digits, classes;
  for (int i = 0; i < 40; ++i) {
    const std::string kind = i % 3 == 0 ? "neg" : "pos";
    decimals += std::to_string(i % 11) + ".25," + std::to_string(i * 7 % 13) + ".5,-" +
                std::to_string(i % 5) + ".75,";
    digits += std::to_string(i % 8) + "," + std::to_string(i * 5 % 7) + "," +
              std::to_string(i * 3 % 11) + "," + kind + "\n";
    decimals += i % 2 == 0 ? "0.5" : "1.5";
    decimals += "\n";
    classes += std::to_string(i % 11) + ".25," + std::to_string(i * 7 % 13) + ".5," + kind + "\n";
  }
  const auto names = [&](const std::string& text, std::string* lines = nullptr) {
    DatasetOptions options;
    const DatasetSplits splits = load(text, options);
    if (lines != nullptr) *lines = joined(splits.warnings);
    return splits.coding->selection.header;
  };
  std::string lines;
  EXPECT_EQ(names("2000,2010,2020,2030\n" + decimals, &lines).size(), 4u);
  EXPECT_VALUES(lines, "t.csv: row 1 '2000' names --csv-header no");
  EXPECT_EQ(names("2018,2019,label\n" + classes), (Words{"2018", "2019", "label"}));
  EXPECT_EQ(names("0,1,2,target\n" + digits), (Words{"0", "1", "2", "target"}));
  EXPECT_EQ(names("2000,2010,2020,income\n" + decimals).size(), 4u);
  EXPECT_EQ(names("5,5,2,pos\n" + digits), Words());
  EXPECT_EQ(names("3.25,4.5,neg\n" + classes, &lines), Words());
  EXPECT_EQ(lines, "");
  // A class that occurs nowhere else, above decimals as they stand in every row: not clear.
  EXPECT_EQ(names("3.25,4.5,rare\n" + classes, &lines), Words());
  EXPECT_CONTAINS(lines, "row 1 ('3.25', '4.5', 'rare') is read as data");
  // Too few rows to be sure.
  EXPECT_EQ(names("2018,2019,label\n3.25,4.5,a\n1.5,2.5,b\n2.5,7.5,a\n", &lines), Words());
  EXPECT_CONTAINS(lines, "is read as data");
}

TEST_F(CsvDialects, AnIndexWithoutANameIsLeftOut) {
  std::string rows, shuffled, texts, measured;
  for (int i = 0; i < 30; ++i) {
    const std::string rest = "," + std::to_string(i % 7) + ".5," + (i % 2 == 0 ? "x" : "y") + "\n";
    rows += std::to_string(i) + rest;
    shuffled += std::to_string(i * 11 % 30) + rest;
    texts += "car " + std::to_string(i) + rest;
    measured += std::to_string(i / 2) + rest;
  }
  for (const std::string& table : {rows, shuffled, texts}) {
    const DatasetSplits splits = load(",size,kind\n" + table);
    EXPECT_EQ(splits.train.shape()[2], 1) << splits.columns;
    EXPECT_CONTAINS(splits.columns, "left out: column 1 (the rows' index)");
    EXPECT_VALUES(joined(splits.warnings), "column 1 every row");
  }
  EXPECT_EQ(load("Unnamed: 0,size,kind\n" + rows).train.shape()[2], 1);
  for (const std::string name : {"", "Unnamed: 0"}) {
    const DatasetSplits repeated = load(name + ",size,kind\n" + measured);
    EXPECT_EQ(repeated.train.shape()[2], 2);
    EXPECT_VALUES(joined(repeated.warnings), "column 1 row 2 '0' row 3");
  }
  EXPECT_EQ(load("id,size,kind\n" + rows).train.shape()[2], 2);
  DatasetOptions options;
  options.csv.columns = "1,2";
  EXPECT_EQ(load(",size,kind\n" + rows, options).train.shape()[2], 2);
}

// Whole numbers as Excel groups them, below and above 1000; `sign` is '.' or ','.
std::string grouped(int i, char sign) {
  const int number = 137 + i * 389;
  const std::string text = std::to_string(number);
  if (number < 1000) return text;
  return text.substr(0, text.size() - 3) + sign + text.substr(text.size() - 3);
}

TEST_F(CsvDialects, WholeNumbersInGroupsAreNoDecimals) {
  const auto table = [](const std::string& separator, const auto& cell) {
    std::string text = "amount" + separator + "kind\n";
    for (int i = 0; i < 24; ++i) text += cell(i) + separator + (i % 2 == 0 ? "x\n" : "y\n");
    return text;
  };
  const auto largest = [&](const std::string& text, std::string* lines = nullptr) {
    DatasetOptions options;
    options.csv.test_share = 0;
    const DatasetSplits splits = load(text, options);
    if (lines != nullptr) *lines = joined(splits.warnings);
    const CsvColumn& column = splits.coding->columns[0];
    return static_cast<double>(
               *std::ranges::max_element(splits.train.as<FeatureSamples>().values)) *
               column.deviation +
           column.mean;
  };
  std::string lines;
  for (const std::string separator : {";", "|", "\t"}) {
    EXPECT_NEAR(largest(table(separator, [](int i) { return grouped(i, '.'); }), &lines), 9084, 1)
        << separator;
    EXPECT_CONTAINS(lines, "give --csv-decimal point) in column 1 ('amount') (row 5: '1.304')");
    EXPECT_NEAR(largest(table(separator, [](int i) { return grouped(i, ','); })), 9084, 1)
        << separator;
  }
  // The target of a regression is named, too.
  DatasetOptions regression;
  regression.task = io::Task::kRegression;
  regression.csv.label_column = "amount";
  const DatasetSplits target = load(table(";", [](int i) { return grouped(i, '.'); }), regression);
  EXPECT_GT(target.train.target()->mean, 1000);
  EXPECT_CONTAINS(joined(target.warnings), "groups of three");
  // Millions alone, and none below 1000.
  EXPECT_NEAR(largest(table(";", [](int i) { return "1." + std::to_string(100 + i) + ".000"; })),
              1123000, 1);
  EXPECT_NEAR(largest(table(";", [](int i) { return grouped(i + 3, '.'); })), 10251, 1);
  // What a program would have grouped is not, digits are fewer, or a zero leads: decimals.
  for (const std::string other : {"4711", "2.5", "0.125", "7.1e2"}) {
    const DatasetSplits splits =
        load(table(";", [&](int i) { return i == 7 ? other : grouped(i, '.'); }));
    EXPECT_EQ(splits.coding->columns[0].decimal, '.') << other;
  }
}

TEST_F(CsvDialects, ALaterFileMayHaveGroupsThatTrainingDidNotReach) {
  std::string text = "amount;kind\n";
  for (int i = 0; i < 24; ++i)
    text += std::to_string(137 + i % 12 * 31) + (i % 2 == 0 ? ";x\n" : ";y\n");
  const DatasetSplits splits = load(text);
  EXPECT_EQ(joined(splits.warnings), "");
  test_support::write_text(folder_ / "t.csv", "amount\n2.422\n2422\n");
  const std::vector<float> later = stream(splits);
  EXPECT_EQ(later[0], later[1]);
  test_support::write_text(folder_ / "t.csv", "amount\n2.5\n");
  EXPECT_THROW(stream(splits), DataError);
}

TEST_F(CsvDialects, WhatMayBeGroupsIsReadAsTheOtherColumnsAndNamed) {
  std::string points = "amount;ratio;kind\n", commas = "amount,kind\n";
  for (int i = 0; i < 24; ++i) {
    const std::string kind = i % 2 == 0 ? "x\n" : "y\n";
    points += grouped(i, '.') + ";" + std::to_string(i % 9) + ".5;" + kind;
    commas += grouped(i, '.') + "," + kind;
  }
  for (const std::string& text : {points, commas}) {
    const DatasetSplits splits = load(text);
    EXPECT_EQ(splits.coding->columns[0].decimal, '.');
    EXPECT_VALUES(joined(splits.warnings),
                  "t.csv point --csv-decimal column 1 'amount' row 5 '1.304'");
    DatasetOptions options;
    options.csv.decimal = CsvDecimal::kPoint;
    EXPECT_EQ(joined(load(text, options).warnings), "");
  }
}

// A table of 40 numbers in which some cells are others.
std::string numbers_with(const std::function<std::string(int)>& cell) {
  std::string text = "age,kind\n";
  for (int i = 0; i < 40; ++i) text += cell(i) + "," + (i % 2 == 0 ? "x" : "y") + "\n";
  return text;
}

TEST_F(CsvDialects, AnOddCellIsMissingAndNamed) {
  const auto plain = [](int i) { return std::to_string(i * i); };
  for (const std::string odd : {"None", "#N/A", "-", "\\N", "Total", "12 kg"}) {
    const DatasetSplits splits =
        load(numbers_with([&](int i) { return i == 16 ? odd : plain(i); }));
    EXPECT_FALSE(splits.coding->columns[0].text) << odd;
    EXPECT_EQ(joined(splits.warnings),
              "t.csv: read as missing: column 1 ('age'): 1 of 40 cells is not a number (row 18: '" +
                  odd + "')\n");
    EXPECT_EQ(stream(splits)[16], 0) << odd;
  }
  const DatasetSplits two = load(numbers_with([&](int i) {
    return i == 16 ? "None" : i == 3 ? "?" : plain(i);
  }));
  EXPECT_CONTAINS(joined(two.warnings), "2 of 40 cells are not numbers (row 5: '?')");
}

TEST_F(CsvDialects, ManyOddCellsMakeATextAndThatIsSaid) {
  const DatasetSplits splits =
      load(numbers_with([](int i) { return i % 5 == 4 ? "3+" : std::to_string(i % 3); }));
  EXPECT_TRUE(splits.coding->columns[0].text);
  EXPECT_LINES(splits.warnings,
               "t.csv: column 1 ('age'): 8 of 40 cells (row 6: '3+'); --csv-missing");
}

TEST_F(CsvDialects, AWarningIsOneLineWhateverACellHas) {
  const DatasetSplits splits =
      load(numbers_with([](int i) { return i == 16 ? "\"two\nlines\"" : std::to_string(i * i); }));
  EXPECT_EQ(joined(splits.warnings),
            "t.csv: read as missing: column 1 ('age'): 1 of 40 cells is not a number (row 18: "
            "'two\\nlines')\n");
}

TEST_F(CsvDialects, BlanksWithinTheQuotesOfANumberAreSkipped) {
  const auto quoted = [](const std::string& blank) {
    return [blank](int i) { return "\"" + blank + std::to_string(i % 25) + ".50" + blank + "\""; };
  };
  DatasetOptions options;
  options.csv.header = CsvHeader::kYes;
  const DatasetSplits plain = load(numbers_with(quoted("")), options),
                      blanks = load(numbers_with(quoted(" ")), options);
  EXPECT_CONTAINS(blanks.columns, "numbers: age");
  EXPECT_EQ(blanks.train.as<FeatureSamples>().values, plain.train.as<FeatureSamples>().values);
  EXPECT_EQ(joined(blanks.warnings), joined(plain.warnings));
}

TEST_F(CsvDialects, NumbersWithAUnitAreTextAndThatIsSaid) {
  DatasetOptions options;
  options.csv.header = CsvHeader::kYes;
  for (const std::string unit : {"%", " kg"})
    EXPECT_LINES(
        load(numbers_with([&](int i) { return std::to_string(i % 25) + unit; }), options).warnings,
        "t.csv: unit column 1 ('age') (row 2: '0" + unit + "'); --ignore-columns");
  const std::string account = joined(
      load(numbers_with([](int i) { return "\" (" + std::to_string(i % 25) + ".50) \""; }), options)
          .warnings);
  EXPECT_VALUES(account, "parentheses column 1 ('age') (row 2: '");
  const std::string no_break =
      joined(load(numbers_with([](int i) { return "\xC2\xA0" + std::to_string(i % 25); }), options)
                 .warnings);
  EXPECT_VALUES(no_break, "blanks column 1 ('age') (row 2: '");
  for (const std::string other : {"-05-2024", ":30", "-a", ".12.2024"})
    EXPECT_EQ(
        joined(load(numbers_with([&](int i) { return std::to_string(i % 25) + other; }), options)
                   .warnings)
            .find("unit"),
        std::string::npos)
        << other;
}

TEST_F(CsvDialects, AClassOfASingleRowIsNamed) {
  std::string text = "size,kind\n";
  for (int i = 0; i < 20; ++i) text += std::to_string(i * i) + ".5," + (i % 2 == 0 ? "x\n" : "y\n");
  EXPECT_EQ(joined(load(text).warnings), "");
  EXPECT_LINES(load(text + "1900.5,Total\n-,----\n").warnings,
               "t.csv: classes single row '----' (row 23), 'Total' (row 22)",
               "t.csv: missing: column 1 ('size'): 1 of 22 cells (row 23: '-')");
}

TEST_F(CsvDialects, AnOddCellThatTrainingDidNotHaveIsRefused) {
  const DatasetSplits splits =
      load(numbers_with([](int i) { return i == 16 ? "Total" : std::to_string(i); }));
  test_support::write_text(folder_ / "t.csv", "age\n1\nTotal\nNone\n");
  EXPECT_EQ(stream(splits).size(), 3u);
  test_support::write_text(folder_ / "t.csv", "age\n1\nSum\n");
  EXPECT_THROW(stream(splits), DataError);
}

TEST_F(CsvDialects, DecimalSignsAreFoundForEachColumnOrGiven) {
  const auto mean_of = [&](const std::string& text, CsvDecimal decimal) {
    DatasetOptions options;
    options.csv.decimal = decimal;
    options.csv.test_share = 0;
    return load(text, options).coding->columns[0].mean;
  };
  std::string ambiguous = "size;kind\n", groups = "size,kind\n", both = "size;other;kind\n";
  for (int i = 0; i < 10; ++i) {
    const std::string kind = i % 2 == 0 ? "x\n" : "y\n";
    ambiguous += "1,500;" + kind;
    groups += "\"1,500\"," + kind;
    both += "1.500;" + std::to_string(i) + ",5;" + kind;
  }
  EXPECT_EQ(mean_of(ambiguous, CsvDecimal::kAuto), 1.5);
  EXPECT_EQ(mean_of(ambiguous, CsvDecimal::kPoint), 1500);
  EXPECT_EQ(mean_of(groups, CsvDecimal::kAuto), 1500);
  EXPECT_EQ(mean_of(groups, CsvDecimal::kComma), 1.5);
  EXPECT_EQ(mean_of(both, CsvDecimal::kAuto), 1500);  // as the other column is written
  EXPECT_EQ(mean_of(both, CsvDecimal::kPoint), 1.5);
}

TEST_F(CsvDialects, ANameTwiceIsTheSameForTrainingAndPrediction) {
  std::string text = "x,x,,kind\n";
  for (int i = 0; i < 20; ++i)
    text += std::to_string(i) + ".5," + std::to_string(i * i) + ".5,7.5," +
            (i % 2 == 0 ? "a\n" : "b\n");
  DatasetOptions options;
  options.csv.test_share = 0;
  const DatasetSplits splits = load(text, options);
  EXPECT_EQ(splits.coding->selection.header, (Words{"x", "x.1", "column 3", "kind"}));
  EXPECT_LINES(splits.warnings, "t.csv: column 2 'x' 'x.1'");
  EXPECT_EQ(stream(splits), splits.train.as<FeatureSamples>().values);
  test_support::write_text(folder_ / "t.csv", "kind,x.1,x,column 3\nc,0.5,0.5,7.5\n");
  EXPECT_EQ(stream(splits).size(), 3u);
}

TEST_F(CsvDialects, NamesThatAreNotUtf8AreNoticedWhereOneIsNotFound) {
  const auto table = [](const std::string& name) {
    return "gr" + name + "e,kind\n1.5,x\n2.5,y\n3.5,x\n4.5,y\n";
  };
  const std::string utf8 = table("\xC3\xB6\xC3\x9F"), latin1 = table("\xF6\xDF");
  const std::string hint = "'gr\\xf6\\xdfe' UTF-8";
  DatasetOptions options;
  options.csv.ignored_columns =
      "gr\xC3\xB6\xC3\x9F"
      "e";
  EXPECT_VALUES(test_support::error_of<ConfigError>([&] { load(latin1, options); }), hint);
  const DatasetSplits splits = load(utf8);
  test_support::write_text(folder_ / "t.csv", latin1);
  EXPECT_VALUES(test_support::error_of<DataError>([&] { stream(splits); }), hint);
}

TEST_F(CsvDialects, AClassMayBeCalledNA) {
  DatasetOptions options;
  const std::string text = "size,country\n1.5,NA\n2.5,DE\n3.5,NA\n4.5,DE\n5.5,NA\n";
  EXPECT_CONTAINS(test_support::error_of<DataError>([&] { load(text); }), "--csv-missing empty");
  options.csv.missing = "empty";
  EXPECT_EQ(load(text, options).train.class_names(), (Words{"DE", "NA"}));
  options.csv.missing = "2.5";
  EXPECT_EQ(load(text, options).coding->missing->markers(), Words{"2.5"});
}

TEST_F(CsvDialects, DamagedUtf16IsNamed) {
  const auto complaint = [&](const std::string& text) {
    return test_support::error_or<DataError>([&] { load(text); }, "none");
  };
  using namespace std::string_literals;
  EXPECT_CONTAINS(complaint("\xFF\xFE"
                            "a\0,\0b"s),
                  "within a character of UTF-16");
  EXPECT_CONTAINS(complaint("\xFE\xFF\xDC\x00\0a"s), "half of a surrogate pair");
}

}  // namespace
}  // namespace io
