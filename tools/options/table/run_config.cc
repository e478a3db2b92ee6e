// Converts texts to a RunConfig: checks types, then combinations of options, then ranges.
#include "tools/options/table/run_config.h"

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "tools/options/table/option_rows.h"
#include "tools/options/table/option_rules.h"

namespace tools {
namespace {

// Rejects e.g. "--save-dir $DIR" in a script if DIR is not set: ignoring it would lose the run. For
// other options an empty text means unset.
void refuse_empty(const OptionSpec& option, const ConfigValue& value) {
  if (option.names_path && value.value.empty() && precedence_of(value) == Precedence::kCommandLine)
    throw io::ConfigError(value.source + " is empty");
}

// Detects e.g. "--lr $LR" if LR is not set.
bool is_said_to_be_a_number(const OptionSpec& option, const ConfigValue& value) {
  const bool number =
      option.type() == OptionSpec::Type::kInteger || option.type() == OptionSpec::Type::kReal;
  return number && precedence_of(value) == Precedence::kCommandLine;
}

// Returns what the row expects instead of an empty text; its metavar if it does not say.
std::string expected_of_string(const OptionSpec& option) {
  RunConfig scratch;
  const std::optional<ValueFault> fault = option.field.store(scratch, "");
  return fault ? fault->expected : option.metavar;
}

// Returns every option, with its default if none was given, each in its canonical spelling.
ConfigValues complete(const ConfigValues& values) {
  ConfigValues result = values;
  apply_defaults(result);
  const GivenValues given(result);
  for (auto& [name, value] : result) {
    const OptionSpec* option = find_option(name);
    if (option == nullptr || name != option->name)
      throw io::ConfigError("unknown option '" + name + "' (from " + value.source + ")");
    refuse_empty(*option, value);
    const auto text = canonical_text(*option, value.value);
    if (!text)
      given.refuse(name, expected_text(*option),
                   base::did_you_mean(value.value, option->field.choices));
    if (text->empty() && (!option->default_value.empty() || is_said_to_be_a_number(*option, value)))
      given.refuse(name, option->type() == OptionSpec::Type::kString ? expected_of_string(*option)
                                                                     : expected_text(*option));
    value.value = *text;
  }
  return result;
}

void require_model_and_data(const GivenValues& given) {
  if (!given.has("model"))
    throw io::ConfigError("no model: give --model " + find_option("model")->help);
  if (!given.has("dataset"))
    throw io::ConfigError("no data set: give --dataset, " + expected_text(*find_option("dataset")));
}

// Unset options keep the structure's default, except flags, which are off.
void store(const OptionSpec& option, const GivenValues& given, RunConfig& config) {
  std::string text = given.text(option.name);
  if (text.empty() && option.type() == OptionSpec::Type::kFlag) text = "false";
  if (text.empty()) return;
  if (const auto fault = option.field.store(config, text))
    given.refuse(option.name, fault->expected, fault->hint);
}

}  // namespace

RunConfig resolve_run_config(const ConfigValues& values) {
  RunConfig config;
  config.origin = complete(values);
  apply_option_rules(config.origin);
  complete_by_optimizer(config.origin);
  const GivenValues given(config.origin);
  require_model_and_data(given);
  for (const OptionSpec& option : train_options()) store(option, given, config);
  check_demands(config.origin);
  apply_device_limits(config.origin, config.compute.device);
  check_groups(given, config);
  config.keeping.configuration = to_toml(options_of_run(config.origin));
  return config;
}

std::optional<engine::ops::RegressionLoss> ModelRequest::regression_loss() const {
  if (task == io::Task::kMultiLabel) return engine::ops::RegressionLoss::kLogistic;
  return task == io::Task::kRegression ? std::optional(loss) : std::nullopt;
}

}  // namespace tools
