// The options for reading tables apply to the files of the command that names them: predictions,
// evaluations, and trainings that start from a checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "tests/support/command_words.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/predict/eval_support.h"
#include "tests/tools/commands/program.h"

namespace {

using eval_support::evaluate;
using eval_support::Json;
using eval_support::Words;
using program::expect_error;
using program::expect_words;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::write_text;

std::string number_of_row(int i) {
  const int tenths = i % 2 * 30 + i % 7;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

// Rows "0.1,q", in which the class follows from the number.
std::string table(const std::string& separator = ",",
                  const std::function<std::string(int)>& cell = number_of_row) {
  std::string text = "a" + separator + "k\n";
  for (int i = 0; i < 60; ++i) text += cell(i) + separator + (i % 2 == 0 ? "p" : "q") + "\n";
  return text;
}

std::string with_comma(std::string number) {
  number[number.find('.')] = ',';
  return number;
}

// Every sixth row has this in place of its number.
std::string with_gaps(const std::string& gap) {
  return table(",", [gap](int i) { return i % 6 == 0 ? gap : number_of_row(i); });
}

class ReadingOptions : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_text(folder_ / name, text);
    return folder_ / name;
  }
  std::string train(const std::string& text, const Words& more = {}) const {
    return eval_support::train(
        folder_ / "run",
        test_support::overridden(
            argv("--dataset csv --epochs 8 --lr 0.1 --annotations", file("train.csv", text)),
            more));
  }
  // Returns the run that continues from the weights of `run` on this table.
  std::string tune(const std::string& name, const std::string& run, const std::string& text,
                   const Words& more = {}) const {
    return eval_support::train(
        folder_ / name, test_support::overridden(argv("--dataset csv --lr 0.05 --init-from", run,
                                                      "--annotations", file("tune.csv", text)),
                                                 more));
  }
  std::vector<double> probabilities(const std::string& run, const std::string& text,
                                    const Words& more = {}) const {
    std::vector<double> found;
    Words words{file("new.csv", text)};
    words.insert(words.end(), more.begin(), more.end());
    for (const Json& line : eval_support::predict(run, words)) {
      const double p = line["probability"];
      found.push_back(line["prediction"] == "p" ? p : 1 - p);
    }
    return found;
  }
  Json report(const std::string& run, const std::string& text, const Words& more = {}) const {
    return evaluate(run, argv("--annotations", file("hold.csv", text), more)).report;
  }

  const test_support::TemporaryDirectory folder_;
};

TEST_F(ReadingOptions, MissingValuesApplyToPredictionsAndEvaluations) {
  const std::string run = train(table());
  const Words option{"--csv-missing", "auto,-999"};
  const std::vector<double> expected = probabilities(run, "a\n3.2\nNA\n1.1\n");
  EXPECT_NE(probabilities(run, "a\n3.2\n-999\n1.1\n"), expected);
  EXPECT_EQ(probabilities(run, "a\n3.2\n-999.0\n1.1\n", option), expected);
  EXPECT_EQ(report(run, with_gaps("-999"), option), report(run, with_gaps("NA")));
  EXPECT_NE(report(run, with_gaps("-999")), report(run, with_gaps("NA")));
}

TEST_F(ReadingOptions, TheRunsOwnDataKeepTheirSplit) {
  const std::string run = train(table());
  const Json own = evaluate(run).report;
  const eval_support::Evaluated changed = evaluate(run, {"--csv-missing", "auto,3.2"});
  EXPECT_EQ(changed.report["samples"], own["samples"]);
  EXPECT_NE(changed.report["loss"], own["loss"]);
  EXPECT_EQ(changed.err, "");
}

TEST_F(ReadingOptions, MissingValuesApplyToATrainingFromWeights) {
  const std::string run = train(table());
  const Words option{"--csv-missing", "auto,-999"}, none;
  const std::string gaps = with_gaps("-999"), probe = "a\n3.2\n0.1\n";
  const std::vector<double> expected = probabilities(tune("na", run, with_gaps("NA")), probe);
  EXPECT_NE(probabilities(tune("ignored", run, gaps), probe), expected);
  const std::string tuned = tune("tuned", run, gaps, option);
  EXPECT_EQ(probabilities(tuned, probe), expected);
  // The new run states how its table was read.
  EXPECT_EQ(probabilities(tuned, "a\n-999\n"), probabilities(tuned, "a\nNA\n"));
  expect_success(call("train --resume", tuned, "--epochs 3 --threads 1"));
}

TEST_F(ReadingOptions, MissingValuesApplyToAResumedRunThatMayChangeThem) {
  const auto resumed = [&](const std::string& gap, const Words& more) {
    std::filesystem::remove_all(folder_ / "run");
    const std::string run = train(table());
    write_text(folder_ / "train.csv", with_gaps(gap));
    expect_success(test_support::engine(argv(
        "train --resume", run, "--epochs 10 --threads 1 --allow-change data,csv-missing", more)));
    return probabilities(run, "a\n3.2\n0.1\n");
  };
  const std::vector<double> expected = resumed("NA", {});
  EXPECT_NE(resumed("-999", {}), expected);
  EXPECT_EQ(resumed("-999", {"--csv-missing", "auto,-999"}), expected);
}

TEST_F(ReadingOptions, TheDecimalSignAppliesToPredictionsAndEvaluations) {
  const auto commas = [](int i) { return with_comma(number_of_row(i)); };
  const auto points = [](int i) { return number_of_row(i) + "00"; };
  const std::string run = train(table(";", commas));
  const Words option{"--csv-decimal", "point"};
  const std::vector<double> expected = probabilities(run, "a;k\n3,2;q\n1,1;p\n");
  EXPECT_NE(probabilities(run, "a;k\n3.200;q\n1.100;p\n"), expected);
  EXPECT_EQ(probabilities(run, "a;k\n3.200;q\n1.100;p\n", option), expected);
  // Other rows than the run's, whose test part would be taken.
  const auto later = [](const auto& cell) { return [&cell](int i) { return cell(i + 2); }; };
  EXPECT_EQ(report(run, table(";", later(points)), option), report(run, table(";", later(commas))));
  EXPECT_EQ(probabilities(run, "a;k\n3,2;q\n1,1;p\n", {"--csv-decimal", "auto"}), expected);
}

TEST_F(ReadingOptions, ASeparatorIsDetectedUnlessTheCommandNamesIt) {
  const std::string run = train(table(), {"--separator", ","});
  const std::vector<double> expected = probabilities(run, "a,k\n3.2,q\n1.1,p\n");
  const std::string semicolons = "a;k\n3.2;q\n1.1;p\n";
  EXPECT_EQ(probabilities(run, semicolons), expected);
  EXPECT_EQ(probabilities(run, semicolons, {"--separator", ";"}), expected);
  EXPECT_EQ(probabilities(run, semicolons, {"--separator", "auto"}), expected);
  EXPECT_EQ(report(run, table(";")), report(run, table()));
  EXPECT_EQ(probabilities(tune("tuned", run, table(";")), semicolons),
            probabilities(tune("same", run, table()), semicolons));
  expect_error(call("predict", run, file("new.csv", semicolons), "--separator ,"), 65,
               "row 1 names no column 'a'");
}

TEST_F(ReadingOptions, ARunsOwnSeparatorIsReadThatDetectionDoesNotKnow) {
  const std::string run = train(table(":"), {"--separator", ":"});
  const std::vector<double> expected = probabilities(run, "a:k\n3.2:q\n1.1:p\n");
  EXPECT_EQ(probabilities(run, "a,k\n3.2,q\n1.1,p\n"), expected);
  EXPECT_EQ(probabilities(run, "a\n3.2\n1.1\n"), expected);
  EXPECT_EQ(evaluate(run).report["samples"], 12);
}

TEST_F(ReadingOptions, AFileWithoutAHeaderIsReadByPosition) {
  const std::string run = train(table());
  EXPECT_EQ(probabilities(run, "3.2,q\n1.1,p\n", {"--csv-header", "no"}),
            probabilities(run, "a,k\n3.2,q\n1.1,p\n"));
  const std::string other = table(",", [](int i) { return number_of_row(i + 2); }),
                    rows = other.substr(4);
  EXPECT_EQ(report(run, rows, {"--csv-header", "no"}), report(run, other));
  const std::string tuned = tune("tuned", run, rows, {"--csv-header", "no"});
  EXPECT_EQ(probabilities(tuned, "3.2,q\n").size(), 1u);
  expect_success(call("train --resume", tuned, "--epochs 3 --threads 1"));
  expect_error(call("predict", tuned, file("new.csv", table()), "--csv-header yes"), 78,
               "--csv-header yes, " + tuned + " row 1");
}

TEST_F(ReadingOptions, OptionsThatPredictDoesNotUseAreErrors) {
  const std::string run = train(table()), rows = file("new.csv", table());
  for (const char* option :
       {"--task regression", "--dataset images", "--limit 5", "--seed 7", "--test-share 0.3",
        "--label-column k", "--annotations other.csv", "--loss mae"})
    expect_error(call("predict", run, rows, test_support::split_words(option)), 78,
                 test_support::split_words(option)[0] + " engine predict");
  for (const char* command : {"predict", "eval"})
    expect_error(call(command, run, command[0] == 'p' ? rows : "--threads=1", "--normalize unit"),
                 78, "--normalize unit images, " + run);
  // The run's own values do no harm.
  expect_success(call("predict", run, rows, "--dataset csv --task classification --seed 0"));
}

TEST_F(ReadingOptions, AFileWithoutAHeaderSaysThatOneIsExpected) {
  const std::string run = train(table());
  expect_error(call("predict", run, file("new.csv", "3.2,p\n1.1,q\n")), 65,
               "new.csv: row 1 'a', header, --csv-header no");
}

TEST_F(ReadingOptions, RowsBeforeAnInvalidOneArePredicted) {
  const std::string run = train(table());
  std::string text = "a,k\n";
  for (int i = 1; i <= 200; ++i) text += i == 150 ? "1.5\n" : "1.5,p\n";
  const CommandResult result = call("predict", run, file("new.csv", text));
  expect_error(result, 65, "row 151 line 151 1 fields 2 row 1");
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 1 + 128);
}

TEST_F(ReadingOptions, EqualNumbersThatAreTwoClassesAreNamed) {
  write_text(
      folder_ / "train.csv", "a,k\n" + [] {
        std::string rows;
        for (int i = 0; i < 60; ++i)
          rows += number_of_row(i) + (i % 3 == 0 ? ",1\n" : i % 3 == 1 ? ",1.0\n" : ",2\n");
        return rows;
      }());
  const CommandResult result = expect_success(
      call("train --model mlp --dataset csv --steps 1 --batch-size 10 --threads 1 --annotations",
           folder_ / "train.csv", "--save-dir", folder_ / "run"));
  expect_words(result.err, {"train.csv: '1' '1.0' same two classes"});
}

class Pipes : public ReadingOptions {
 protected:
  Pipes() { EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0); }

  const std::string pipe_ = folder_ / "pipe";
};

TEST_F(Pipes, AreReadAsTheyComeInBlocksOf64Rows) {
  const std::string run = train(table());
  test_support::Running predicting({test_support::engine_binary(), "predict", run, pipe_});
  std::ofstream writer(pipe_);
  writer << "a,k\n";
  for (int i = 0; i < 70; ++i) writer << "1.5,p\n";
  writer.flush();
  EXPECT_TRUE(predicting.writes_out(",64,"));
  writer << "1.5,p\n";
  writer.close();
  EXPECT_EQ(predicting.wait(), 0);
  EXPECT_TRUE(predicting.writes_out(",71,"));
}

TEST_F(Pipes, WithoutAWriterAreNamed) {
  const std::string run = train(table());
  test_support::Running predicting({test_support::engine_binary(), "predict", run, pipe_});
  EXPECT_TRUE(predicting.writes_err("written to the pipe " + pipe_));
  std::ofstream(pipe_) << "a,k\n1.5,p\n";
  EXPECT_EQ(predicting.wait(), 0);
}

}  // namespace
