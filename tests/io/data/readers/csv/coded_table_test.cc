// Labels of a table that is coded like that of another model: which columns --label-column names.
#include "io/data/readers/csv/coded_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/sources/dataset_registry.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

using Words = std::vector<std::string>;
using Flags01 = std::vector<float>;

// Features a and b, labels of 0 or 1, and two numbers.
const char* const kRows =
    "a,b,hot,odd,cold,even,price,cost\n"
    "1,5,0,1,1,0,10,7\n2,6,0,0,1,1,20,5\n3,4,1,1,0,0,40,4\n4,2,1,0,0,1,80,1\n";

class CodedTable : public ::testing::Test {
 protected:
  CodedTable() {
    options_.name = "csv";
    options_.csv.test_share = 0;
    options_.csv.columns = "a,b";
  }
  // Returns a model of these labels.
  std::shared_ptr<SampleCoding> model(Task task, const std::string& labels,
                                      const std::string& text = kRows) {
    DatasetOptions options = options_;
    options.task = task;
    options.csv.label_column = labels;
    options.csv.annotations = file("train.csv", text);
    const DatasetSplits splits = load_dataset(options);
    auto coding = std::make_shared<SampleCoding>();
    coding->like = splits.train.like();
    coding->table = splits.coding;
    coding->source = "run";
    return coding;
  }
  // Reads a table in the coding of a model; `labels`: what the command names, "" for nothing.
  DatasetSplits read(Task task, std::shared_ptr<SampleCoding> coding, const std::string& labels,
                     const std::string& text = kRows) {
    DatasetOptions options = options_;
    options.csv.columns.clear();
    options.task = task;
    options.coding = std::move(coding);
    options.csv.label_column = labels;
    options.csv.given.label = !labels.empty();
    return read_coded_table(file("new.csv", text), options);
  }
  std::string file(const std::string& name, const std::string& text) const {
    test_support::write_text(folder_ / name, text);
    return folder_ / name;
  }
  static std::shared_ptr<SampleCoding> inputs_of(std::shared_ptr<SampleCoding> coding) {
    coding->inputs_only = true;
    return coding;
  }

  const test_support::TemporaryDirectory folder_;
  DatasetOptions options_;
};

TEST_F(CodedTable, NewLabelsAreTheNamedColumns) {
  const auto inputs = inputs_of(model(Task::kMultiLabel, "hot,odd"));
  for (const char* named : {"cold, even", "5,6"}) {
    const DatasetSplits splits = read(Task::kMultiLabel, inputs, named);
    const auto& labels = splits.train.as<MultiLabels>();
    EXPECT_EQ(labels.names, (Words{"cold", "even"}));
    EXPECT_EQ(labels.values, (Flags01{1, 0, 1, 1, 0, 0, 0, 1}));
    EXPECT_EQ(splits.coding->selection.label_titles(), (Words{"cold", "even"}));
    EXPECT_EQ(splits.coding->features, 2u);
  }
  // Without the option they are those of the model.
  EXPECT_EQ(read(Task::kMultiLabel, inputs, "").train.as<MultiLabels>().names,
            (Words{"hot", "odd"}));
  // Other numbers of labels, one of which the model's table did not have.
  const DatasetSplits more = read(Task::kMultiLabel, inputs, "even,dry,hot",
                                  "dry,even,hot,a,b\n1,0,1,1,5\n0,0,1,2,6\n1,1,0,3,7\n");
  EXPECT_EQ(more.train.as<MultiLabels>().values, (Flags01{0, 1, 1, 0, 0, 1, 1, 1, 0}));
  EXPECT_EQ(more.coding->selection.label_titles(), (Words{"even", "dry", "hot"}));
  EXPECT_EQ(more.coding->selection.header.size(), more.coding->table_columns);
}

TEST_F(CodedTable, ANumberIsTheColumnOfItsOwnFile) {
  const auto inputs = inputs_of(model(Task::kRegression, "price"));
  for (const char* named : {"8", "cost"}) {
    const DatasetSplits splits = read(Task::kRegression, inputs, named);
    EXPECT_EQ(splits.train.target()->mean, 4.25) << named;
    EXPECT_EQ(splits.train.target()->name, "cost");
  }
  // Also for classes and targets that the model knows.
  const DatasetSplits targets = read(Task::kRegression, model(Task::kRegression, "price"), "1",
                                     "paid,a,b,price\n80,1,5,1\n10,1,5,1\n");
  const auto& found = targets.train.as<TargetValues>();
  EXPECT_GT(found.values[0], found.values[1]);
  // A number that the command does not name is that of the training table.
  DatasetOptions saved = options_;
  saved.task = Task::kRegression;
  saved.coding = model(Task::kRegression, "7");
  saved.csv.label_column = "7";
  saved.csv.columns.clear();
  EXPECT_NO_THROW(read_coded_table(file("new.csv", "price,a,b\n80,1,5\n10,1,5\n"), saved));
}

TEST_F(CodedTable, ALabelThatTheFileLacksIsNamed) {
  for (const bool inputs : {false, true}) {
    const auto coding = model(Task::kRegression, "price");
    coding->inputs_only = inputs;
    const auto complaint = [&](const std::string& label) {
      return test_support::error_or<ConfigError>([&] { read(Task::kRegression, coding, label); },
                                                 "none");
    };
    EXPECT_VALUES(complaint("pricee"), "new.csv 'pricee' did you mean 'price'");
    EXPECT_VALUES(complaint("9"), "new.csv '9' 1 to 8");
    EXPECT_VALUES(complaint("b"), "new.csv --label-column b input");
  }
}

TEST_F(CodedTable, LabelsOfAModelKeepTheirOrder) {
  const auto coding = model(Task::kMultiLabel, "hot,odd");
  for (const char* named : {"hot,odd", "odd,hot", "4,3"})
    EXPECT_EQ(read(Task::kMultiLabel, coding, named).train.as<MultiLabels>().values,
              (Flags01{0, 1, 0, 0, 1, 1, 1, 0}))
        << named;
  const auto complaint = [&](const std::string& labels) {
    return test_support::error_or<DataError>([&] { read(Task::kMultiLabel, coding, labels); },
                                             "none");
  };
  EXPECT_VALUES(complaint("cold,even"), "new.csv --label-column cold, even hot, odd");
  EXPECT_VALUES(complaint("hot"), "new.csv --label-column hot hot, odd");
}

TEST_F(CodedTable, WithoutAHeaderLabelsAreFoundByNumber) {
  const std::string text = kRows, rows = text.substr(text.find('\n') + 1);
  options_.csv.columns = "1,2";
  const auto inputs = inputs_of(model(Task::kRegression, "7", rows));
  const DatasetSplits splits = read(Task::kRegression, inputs, "8", rows);
  EXPECT_EQ(splits.train.target()->mean, 4.25);
  EXPECT_EQ(splits.coding->selection.label, 7u);
  EXPECT_THROW(read(Task::kRegression, inputs, "cost", rows), ConfigError);
}

}  // namespace
}  // namespace io
