// Tables as other programs write them, from training to prediction with the real program.
#include <gtest/gtest.h>

#include <charconv>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/terminal.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

using program::expect_error;
using program::expect_words;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::write_text;
using Texts = std::vector<std::string>;

constexpr int kPoints = 120;

// Rows "0.25,-3,neg", each after what `before` gives.
std::string points(const std::function<std::string(int)>& before = {}) {
  std::string text;
  for (int i = 0; i < kPoints; ++i) {
    const int x = (i * 37) % 101 - 50, y = (i * 53) % 89 - 44;
    text += (before ? before(i) : "") + std::to_string(x) + ".25," + std::to_string(y) + "," +
            (x > y ? "pos" : "neg") + "\n";
  }
  return text;
}

Texts split_lines(const std::string& text) {
  Texts lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class TablesOfOthers : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  std::string run(const std::string& name) const { return folder_ / ("run-" + name); }
  CommandResult train(const std::string& name, const std::string& table, const Texts& more = {}) {
    write_text(file("t.csv"), table);
    Texts words{"train",       "--model",   "mlp", "--dataset",  "csv",    "--annotations",
                file("t.csv"), "--epochs",  "3",   "--lr",       "0.05",   "--batch-size",
                "10",          "--threads", "1",   "--save-dir", run(name)};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = expect_success(engine(words));
    return result;
  }
  // The table's predictions, one a line, without the file's name.
  std::string predicted(const std::string& name, const Texts& more = {}) {
    Texts words{"predict", run(name), file("t.csv"), "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = expect_success(engine(words));
    std::string text;
    for (const std::string& line : split_lines(result.out))
      text += line.substr(line.find(',')) + "\n";
    return text;
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(TablesOfOthers, AnIndexAndNamesThatAreNumbersChangeNothing) {
  EXPECT_EQ(train("plain", "x0,x1,label\n" + points()).err, "");
  const std::string expected = predicted("plain");
  EXPECT_EQ(split_lines(expected).size(), std::size_t{kPoints + 1});
  const auto index = [](int i) { return std::to_string(i) + ","; };
  expect_words(train("index", ",x0,x1,label\n" + points(index)).err,
               {"column 1 has no name", "index left out"});
  EXPECT_EQ(predicted("index"), expected);
  expect_words(train("numbers", "0,1,2\n" + points()).err,
               {"row 1 '0' '1' '2'", "--csv-header no"});
  EXPECT_EQ(predicted("numbers"), expected);
  const auto r_index = [](int i) { return "\"" + std::to_string(i + 1) + "\","; };
  train("r", "\"\",\"x0\",\"x1\",\"label\"\n" + points(r_index));
  EXPECT_EQ(predicted("r"), expected);
}

TEST_F(TablesOfOthers, OneOddCellIsMissingAndSaid) {
  std::string table = "x0,x1,label\n" + points();
  const std::size_t at = table.find('\n', 200) + 1;
  table.replace(at, table.find(',', at) - at, "None");
  const CommandResult result = train("odd", table);
  expect_words(
      result.err,
      {"read as missing: column 1 ('x0'): 1 of 120 cells is not a number (row ", ": 'None')"});
  expect_words(result.out, {"numbers: x0, x1"});
  EXPECT_EQ(split_lines(predicted("odd")).size(), std::size_t{kPoints + 1});
}

TEST_F(TablesOfOthers, AColumnWithoutDifferentValuesHasNoPartInPredictions) {
  const auto year = [](const std::string& text) { return [text](int) { return text + ","; }; };
  const CommandResult result = train("constant", "year,x0,x1,label\n" + points(year("2023")));
  expect_words(result.out, {"always 0 year"});
  const std::string expected = predicted("constant");
  write_text(file("t.csv"), "year,x0,x1,label\n" + points(year("2100")));
  EXPECT_EQ(predicted("constant"), expected);
}

TEST_F(TablesOfOthers, ANameTwiceTrainsAndPredicts) {
  expect_words(train("twice", "x,x,label\n" + points()).err, {"becomes 'x.1'"});
  EXPECT_EQ(split_lines(predicted("twice")).size(), std::size_t{kPoints + 1});
}

TEST_F(TablesOfOthers, ARunKeepsHowItsTableIsRead) {
  std::string table = "x0,x1,label\n" + points();
  for (std::size_t at = table.find("neg"); at != std::string::npos; at = table.find("neg", at))
    table.replace(at, 3, "NA");
  train("kept", table, {"--csv-missing", "empty"});
  const std::string answers = predicted("kept");
  EXPECT_CONTAINS(answers, ",NA,");
  expect_success(call("eval", run("kept"), "--threads 1"));
  expect_success(call("train --resume", run("kept"), "--epochs 4 --threads 1"));
  expect_error(call("train --resume", run("kept"), "--epochs 5 --csv-missing auto"), 78,
               "csv-missing");
}

TEST_F(TablesOfOthers, PredictedNumbersReadBackExactlyInEveryFormat) {
  std::string table = "x;y\n";
  for (int i = 0; i < kPoints; ++i)
    table += std::to_string(i) + ",5;1.000.000.0" + std::to_string(10 + i % 80) + ",125\n";
  train("large", table, {"--task", "regression"});
  const auto output = [&](const std::string& format) {
    const CommandResult result = expect_success(
        call("predict", run("large"), file("t.csv"), "--threads 1 --format", format));
    return split_lines(result.out);
  };
  const Texts csv = output("csv"), json = output("json"), people = output("table");
  ASSERT_EQ(csv.size(), std::size_t{kPoints + 1});
  ASSERT_EQ(json.size(), csv.size());
  ASSERT_EQ(people.size(), csv.size());
  for (std::size_t i = 1; i < csv.size(); ++i) {
    const double value = tools::parse_json(json[i], "line")["prediction"].get<double>();
    const std::string text = csv[i].substr(csv[i].rfind(',') + 1);
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    EXPECT_EQ(read, value) << csv[i];
    EXPECT_NEAR(read, 1e9, 1000) << csv[i];
    EXPECT_TRUE(people[i].ends_with(" " + text)) << people[i];
  }
}

TEST_F(TablesOfOthers, NamesReachATerminalEscapedAndAFileUnchanged) {
  std::string table = "x0,x1,label\n" + points();
  const std::string name = "n\x1B[31m";
  for (std::size_t at = table.find("neg"); at != std::string::npos; at = table.find("neg", at))
    table.replace(at, 3, name);
  train("names", table);
  const Texts predict{"predict", run("names"), file("t.csv"), "--threads", "1"};
  const Texts eval{"eval", run("names"), "--threads", "1", "--format", "csv"};
  for (const Texts& command : {predict, eval}) {
    EXPECT_CONTAINS(engine(command).out, name);
    const test_support::TerminalResult shown = test_support::engine_on_terminal(command);
    EXPECT_EQ(shown.exit_code, 0) << shown.text;
    if (shown.text.empty()) GTEST_SKIP() << "no terminals here";
    EXPECT_EQ(shown.text.find('\x1B'), std::string::npos) << shown.text;
    EXPECT_CONTAINS(shown.text, "n\\x1b[31m");
  }
}

}  // namespace
