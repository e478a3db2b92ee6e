// Examples in the help of options: each is one that the program takes.
#include "tools/options/input/help_text.h"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/base/text/text_parts.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"

namespace {

TEST(HelpText, EveryOptionHasAnExampleThatTheProgramTakes) {
  for (const tools::OptionSpec& spec : tools::train_options()) {
    const std::string name = spec.name;
    SCOPED_TRACE(name);
    std::string example = spec.example;
    EXPECT_NE(example, "") << "without one";
    if (example.empty()) continue;
    EXPECT_TRUE(example.find("--" + name) != std::string::npos ||
                example.find("--no-" + name) != std::string::npos)
        << example;
    std::erase(example, '\'');
    CLI::App app("", "engine train");
    tools::ConfigValues values;
    std::string config_file;
    tools::add_train_options(app, values, config_file);
    ASSERT_TRUE(tools::parse(app, base::split_text(example, ' ')));
    values.try_emplace("model", tools::ConfigValue{"mlp", "--model"});
    values.try_emplace("dataset", tools::ConfigValue{"mnist", "--dataset"});
    tools::apply_defaults(values);
    EXPECT_NO_THROW(tools::resolve_run_config(values)) << example;
  }
}

}  // namespace
