// The option table, and values from TOML files and the environment: precedence, names, types,
// messages with file and line.
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/options/input/command_line.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/run_config.h"

namespace {

using io::ConfigError;
using tools::ConfigValues;

class ConfigFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    test_support::write_text(folder_ / name, text);
    return folder_ / name;
  }
  ConfigValues read(const std::string& text) {
    ConfigValues values;
    tools::apply_config_file(write("run.toml", text), values);
    return values;
  }
  // The message of the ConfigError that `text` must cause.
  std::string fault(const std::string& text) {
    return test_support::error_of<ConfigError>([&] { read(text); });
  }
  test_support::TemporaryDirectory folder_;
};

TEST(OptionTable, NamesAreUniqueAndDefaultsAreOfTheirType) {
  std::set<std::string> names;
  for (const tools::OptionSpec& option : tools::train_options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_TRUE(tools::canonical_text(option, option.default_value)) << option.name;
    EXPECT_NE(std::string(option.help), "") << option.name;
  }
  EXPECT_EQ(tools::find_option("sync_every"), tools::find_option("sync-every"));
  EXPECT_EQ(tools::find_option("ampere"), nullptr);
}

TEST(OptionTable, ConditionsNameOptionsAndTheirChoices) {
  const auto check = [](const tools::OptionSpec& row, const tools::Condition& condition) {
    const tools::OptionSpec* other =
        condition.option.empty() ? &row : tools::find_option(condition.option);
    ASSERT_NE(other, nullptr) << row.name << ": " << condition.option;
    EXPECT_EQ(condition.kind == tools::Condition::Kind::kOneOf, !condition.choices.empty());
    if (other->type() != tools::OptionSpec::Type::kChoice || condition.choices.empty()) return;
    for (const std::string& choice : base::split_text(condition.choices, '|'))
      EXPECT_EQ(std::ranges::count(other->field.choices, choice), 1) << row.name << ": " << choice;
  };
  for (const tools::OptionSpec& row : tools::train_options()) {
    for (const tools::Condition& need : row.needs) check(row, need);
    for (const std::string& other : row.excludes)
      EXPECT_NE(tools::find_option(other), nullptr) << row.name << ": " << other;
    for (const tools::Demand& demand : row.demands) {
      check(row, demand.own);
      for (const tools::Condition& condition : demand.any_of) check(row, condition);
      EXPECT_NE(demand.text, "") << row.name;
    }
  }
}

TEST(OptionTable, DefaultsAreWithinTheirRanges) {
  for (const tools::OptionSpec& row : tools::train_options()) {
    if (row.default_value.empty()) continue;
    tools::RunConfig config;
    config.spawn = 1;
    const auto fault = row.field.store(config, row.default_value);
    EXPECT_FALSE(fault) << row.name << ": " << fault->expected;
    if (!row.field.text) continue;
    EXPECT_EQ(row.field.text(config), row.default_value) << row.name;
  }
}

TEST(OptionTable, AnEarlierNameIsTheSameOption) {
  const tools::OptionSpec& option = *tools::find_option("lr-milestones");
  EXPECT_EQ(option.alias, "lr-step-epochs");
  EXPECT_EQ(tools::find_option("lr_step_epochs"), &option);
  std::set<std::string> names;
  for (const tools::OptionSpec& row : tools::train_options())
    for (const std::string& name : {row.name, row.alias})
      EXPECT_TRUE(name.empty() || names.insert(name).second) << name;
}

TEST(OptionTable, NumbersOfDevicesHaveOneSpelling) {
  const tools::OptionSpec& option = *tools::find_option("gpu-devices");
  EXPECT_EQ(tools::canonical_text(option, "0 1"), "0,1");
  EXPECT_EQ(tools::canonical_text(option, "2-4, 0"), "2,3,4,0");
  EXPECT_EQ(tools::canonical_text(option, "none"), "none");
  EXPECT_EQ(tools::canonical_text(option, ""), "");
  EXPECT_EQ(tools::canonical_text(option, "1-0"), std::nullopt);
}

TEST(OptionTable, NearestNameForgivesTypingErrorsOnly) {
  const std::vector<std::string> names{"batch-size", "lr", "lr-scale", "sync-every"};
  EXPECT_EQ(base::nearest_name("batchsize", names), "batch-size");
  EXPECT_EQ(base::nearest_name("bacth_size", names), "batch-size");
  EXPECT_EQ(base::nearest_name("sync-evry", names), "sync-every");
  EXPECT_EQ(base::nearest_name("rl", names), "lr");
  EXPECT_EQ(base::nearest_name("momentum", names), "");
  EXPECT_EQ(base::nearest_name(std::string(100'000, 'x'), names), "");
}

TEST_F(ConfigFiles, AnEarlierNameIsAcceptedInEverySource) {
  EXPECT_EQ(read("lr-step-epochs = [3, 5]\n").at("lr-milestones").value, "3,5");
  EXPECT_VALUES(fault("lr-milestones = [3]\nlr-step-epochs = [5]\n"), "given twice");

  CLI::App app("", "engine train");
  ConfigValues values;
  tools::add_table_options(app, values);
  ASSERT_TRUE(tools::parse(app, {"--lr_step_epochs", "30,60"}));
  EXPECT_EQ(values.at("lr-milestones").value, "30,60");
  EXPECT_FALSE(values.contains("lr-step-epochs"));

  ASSERT_EQ(setenv("ENGINE_LR_STEP_EPOCHS", "7", 1), 0);
  ConfigValues variables;
  tools::apply_environment(variables);
  EXPECT_EQ(variables.at("lr-milestones").value, "7");
  EXPECT_EQ(variables.at("lr-milestones").source, "ENGINE_LR_STEP_EPOCHS");
  ASSERT_EQ(setenv("ENGINE_LR_MILESTONES", "8", 1), 0);
  const std::string error_text =
      test_support::error_of<ConfigError>([&] { tools::apply_environment(variables); });
  EXPECT_VALUES(error_text, "ENGINE_LR_MILESTONES ENGINE_LR_STEP_EPOCHS");
  unsetenv("ENGINE_LR_STEP_EPOCHS");
  unsetenv("ENGINE_LR_MILESTONES");
}

TEST_F(ConfigFiles, KeysAtTheTopAndInTablesOfTheirGroup) {
  const ConfigValues values = read(
      "model = 'mlp'\nbatch_size = 64\n[optimizer]\nlr = 0.1\nlr-milestones = [3, 5]\nnesterov = "
      "true\nmomentum = 1\n"
      "[state]\nsave-every = 500\n[compute]\ngpu-devices = [0, 2]\n");
  EXPECT_EQ(values.at("model").value, "mlp");
  EXPECT_EQ(values.at("batch-size").value, "64");
  EXPECT_EQ(values.at("lr").value, "0.1");
  EXPECT_EQ(values.at("lr").source, folder_ / "run.toml:4");
  EXPECT_EQ(values.at("lr-milestones").value, "3,5");
  EXPECT_EQ(values.at("nesterov").value, "true");
  EXPECT_EQ(values.at("momentum").value, "1");
  EXPECT_EQ(values.at("save-every").value, "500");
  EXPECT_EQ(values.at("gpu-devices").value, "0,2");
  EXPECT_EQ(read("gpu-devices = 3\n").at("gpu-devices").value, "3");
}

TEST_F(ConfigFiles, TheEarlierNameOfTheOptimizerSectionIsAccepted) {
  EXPECT_EQ(read("[optimiser]\nlr = 0.1\n").at("lr").value, "0.1");
}

TEST_F(ConfigFiles, NumbersMayStandForTextThatMayBeANumber) {
  const ConfigValues values =
      read("outer-lr = 0.7\nouter-momentum = 0\nsparse-bits = 4\nlog-every = 5\n");
  EXPECT_EQ(values.at("outer-lr").value, "0.7");
  EXPECT_EQ(values.at("outer-momentum").value, "0");
  EXPECT_EQ(values.at("sparse-bits").value, "4");
  EXPECT_EQ(values.at("log-every").value, "5");
}

TEST_F(ConfigFiles, TrueStandsForAnOptionWithoutAValue) {
  EXPECT_EQ(read("spawn = true\n").at("spawn").value, "on");
  EXPECT_EQ(read("elastic = false\n").at("elastic").value, "off");
}

TEST_F(ConfigFiles, FaultsNameFileLineAndRemedy) {
  EXPECT_EQ(fault("model = 'mlp'\nbatchsize = 3\n"),
            (folder_ / "run.toml") + ":2: unknown key 'batchsize': did you mean 'batch-size'?");
  EXPECT_EQ(fault("qqqqqqqq = 3\n"), (folder_ / "run.toml") + ":1: unknown key 'qqqqqqqq'");
  // Keys that would be rejected in its place are not proposed.
  EXPECT_EQ(fault("batchsize = 3\nbatch-size = 4\n"),
            (folder_ / "run.toml") + ":1: unknown key 'batchsize'");
  EXPECT_EQ(fault("batchsize = 3\n[batch]\nbatch-size = 4\n"),
            (folder_ / "run.toml") + ":1: unknown key 'batchsize'");
  EXPECT_EQ(fault("[optimizer]\nbatchsize = 3\n"),
            (folder_ / "run.toml") + ":2: unknown key 'batchsize'");
  EXPECT_EQ(fault("\nlr = 'fast'\n"),
            (folder_ / "run.toml") + ":2: 'lr' is a string; expected a number");
  EXPECT_EQ(fault("epochs = 1.5\n"),
            (folder_ / "run.toml") + ":1: 'epochs' is a real number; expected an integer");
  EXPECT_EQ(fault("shuffle = 1\n"),
            (folder_ / "run.toml") + ":1: 'shuffle' is an integer; expected true or false");
  EXPECT_EQ(fault("model = true\n"),
            (folder_ / "run.toml") + ":1: 'model' is a boolean; expected UTF-8 text");
  EXPECT_EQ(fault("sync = true\n"), (folder_ / "run.toml") +
                                        ":1: 'sync' is a boolean; expected one of grad, params, "
                                        "post-local, slowmo, diloco, streaming, gossip, none, "
                                        "auto");
  EXPECT_EQ(fault("lr-milestones = [3, 'x']\n"),
            (folder_ / "run.toml") +
                ":1: 'lr-milestones' is a list with a string in it; expected integers");
  EXPECT_EQ(fault("lr = 1979-05-27\n"),
            (folder_ / "run.toml") + ":1: 'lr' is a date or time; expected a number");
  EXPECT_VALUES(fault("[sync]\nlr = 1\n"), (folder_ / "run.toml") + ":2: 'lr' [optimizer] [sync]");
  EXPECT_EQ(fault("sync-every = 1\nsync_every = 2\n").find(folder_ / "run.toml:"), 0u);
  EXPECT_VALUES(fault("lr = 1\n[optimizer]\nlr = 2\n"), "run.toml:3: 'lr' run.toml:1");
  EXPECT_CONTAINS(fault("lr = = 1\n"), "run.toml:1: not TOML: ");
  EXPECT_CONTAINS(fault("lr = 1\nlr = 2\n"), "run.toml:2: not TOML: ");
  EXPECT_CONTAINS(fault(std::string("lr = 1\n\0\xff\n", 9)), "run.toml:2: not TOML: ");
  EXPECT_CONTAINS(fault(std::string(2 << 20, '#')), "longer than 1048576 bytes");
  EXPECT_CONTAINS(fault("[optimizer.lr]\nx = 1\n"), "'lr' is a table");
  EXPECT_CONTAINS(fault("[[optimiser]]\nlr = 1\n"), "unknown key 'optimiser'");
}

TEST_F(ConfigFiles, MissingFileAndFolderAreErrors) {
  ConfigValues values;
  EXPECT_THROW(tools::apply_config_file(folder_ / "none.toml", values), ConfigError);
  EXPECT_THROW(tools::apply_config_file(folder_.path().string(), values), ConfigError);
}

TEST_F(ConfigFiles, IncludedValuesHoldWhereTheFileSaysNothing) {
  std::filesystem::create_directory(folder_ / "sub");
  write("sub/base.toml", "include = 'deep.toml'\nlr = 1.0\nseed = 5\n");
  write("sub/deep.toml", "seed = 6\nlimit = 7\n");
  write("late.toml", "seed = 8\n");
  const ConfigValues values = read("include = ['sub/base.toml', 'late.toml']\nlr = 2.0\n");
  EXPECT_EQ(values.at("lr").value, "2");
  EXPECT_EQ(values.at("seed").value, "8");
  EXPECT_EQ(values.at("limit").value, "7");
  EXPECT_CONTAINS(values.at("limit").source, "deep.toml:2");
}

TEST_F(ConfigFiles, ANulIsRefusedWithTheWholeText) {
  EXPECT_VALUES(fault("model = \"a\\u0000b\"\n"), ":1: 'model' 'a\\x00b', NUL");
  EXPECT_CONTAINS(fault("include = \"a\\u0000b\"\n"), "'include' is 'a\\x00b'");
  EXPECT_CONTAINS(fault("\"lr\\u0000\" = 1.0\n"), "unknown key 'lr\\x00'");
}

TEST_F(ConfigFiles, IncludesInACircleAreRefused) {
  write("other.toml", "include = 'run.toml'\n");
  EXPECT_CONTAINS(fault("include = 'other.toml'\n"), "includes itself");
  const std::string missing = fault("lr = 1.0\ninclude = 'none.toml'\n");
  EXPECT_CONTAINS(missing, "none.toml (included at ");
  EXPECT_CONTAINS(missing, "run.toml:2) cannot be read");
  EXPECT_CONTAINS(fault("include = 3\n"), "'include' is an integer");
}

TEST_F(ConfigFiles, VariablesOfTheEnvironmentAreReplaced) {
  setenv("CONFIG_TEST_DIR", "/data/${x}", 1);
  setenv("CONFIG_TEST_N", "64", 1);
  setenv("CONFIG_TEST_EMPTY", "", 1);
  write("64.toml", "seed = 9\n");
  const ConfigValues values = read(
      "include = '${CONFIG_TEST_N}.toml'\ndata-dir = '${CONFIG_TEST_DIR}/a$b$'\n"
      "batch-size = '${CONFIG_TEST_N}'\nsave-dir = 'r$${CONFIG_TEST_N}$$'\n");
  EXPECT_EQ(values.at("data-dir").value, "/data/${x}/a$b$");  // replaced once
  EXPECT_EQ(values.at("batch-size").value, "64");
  EXPECT_EQ(values.at("save-dir").value, "r${CONFIG_TEST_N}$");
  EXPECT_EQ(values.at("seed").value, "9");
  const std::string place = folder_ / "run.toml:2: ";
  EXPECT_VALUES(fault("seed = 1\ndata-dir = '${CONFIG_TEST_NONE}/x'\n"),
                place + "'data-dir' '${CONFIG_TEST_NONE}/x': CONFIG_TEST_NONE");
  EXPECT_EQ(fault("seed = 1\ndata-dir = '${CONFIG_TEST_EMPTY}'\n"),
            place +
                "'data-dir' is '${CONFIG_TEST_EMPTY}': the environment variable "
                "CONFIG_TEST_EMPTY is empty");
  EXPECT_CONTAINS(fault("data-dir = '${CONFIG_TEST_N'\n"), "has no closing brace");
  EXPECT_CONTAINS(fault("data-dir = '${a b}'\n"), "names no variable");
  EXPECT_CONTAINS(fault("include = '${CONFIG_TEST_NONE}.toml'\n"), "CONFIG_TEST_NONE is not set");
  for (const char* name : {"CONFIG_TEST_DIR", "CONFIG_TEST_N", "CONFIG_TEST_EMPTY"}) unsetenv(name);
}

TEST_F(ConfigFiles, AVariableIsOfNoConcernWhereAStrongerSourceHasTheValue) {
  ConfigValues values{{"data-dir", {"d", "--data-dir"}}, {"batch-size", {"8", "--batch-size"}}};
  tools::apply_config_file(
      write("run.toml", "data-dir = '${CONFIG_TEST_NONE}'\nbatch-size = '${CONFIG_TEST_NONE}'\n"),
      values);
  EXPECT_EQ(values.at("data-dir").value, "d");
  EXPECT_EQ(values.at("batch-size").value, "8");
}

TEST(ConfigText, OfACheckpointIsTakenAsItIs) {
  ConfigValues values;
  tools::apply_config_text("data-dir = '${CONFIG_TEST_NONE}/$$'\n", "a.ckpt", values);
  EXPECT_EQ(values.at("data-dir").value, "${CONFIG_TEST_NONE}/$$");
}

TEST_F(ConfigFiles, CommandLineThenEnvironmentThenFileThenDefault) {
  setenv("ENGINE_SEED", "2", 1);
  setenv("ENGINE_LR", "0.2", 1);
  setenv("ENGINE_SYNC_EVERY", "", 1);
  setenv("ENGINE_NOT_AN_OPTION", "x", 1);
  ConfigValues values{{"seed", {"1", "--seed"}}};
  tools::apply_environment(values);
  tools::apply_config_file(write("run.toml", "seed = 3\nlr = 0.3\nlimit = 3\n"), values);
  tools::apply_defaults(values);
  for (const char* name : {"ENGINE_SEED", "ENGINE_LR", "ENGINE_SYNC_EVERY", "ENGINE_NOT_AN_OPTION"})
    unsetenv(name);

  EXPECT_EQ(values.at("seed").value, "1");
  EXPECT_EQ(values.at("lr").value, "0.2");
  EXPECT_EQ(values.at("lr").source, "ENGINE_LR");
  EXPECT_EQ(values.at("limit").value, "3");
  EXPECT_EQ(values.at("sync-every").source, "default");
  EXPECT_EQ(values.size(), tools::train_options().size());
  EXPECT_EQ(tools::precedence_of(values.at("seed")), tools::Precedence::kCommandLine);
  EXPECT_EQ(tools::precedence_of(values.at("lr")), tools::Precedence::kEnvironment);
  EXPECT_EQ(tools::precedence_of(values.at("limit")), tools::Precedence::kFile);
  EXPECT_EQ(tools::precedence_of(values.at("epochs")), tools::Precedence::kDefault);
  EXPECT_EQ(tools::precedence_of({"1", "ENGINE_x.toml:3"}), tools::Precedence::kFile);
}

}  // namespace
