// Rows, defaults and checks that follow from the optimizers' descriptors.
#include "tools/options/optimizer_options.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "engine/optim/optimizer_spec.h"
#include "io/base/files/io_error.h"
#include "io/base/text/text_format.h"

namespace tools {
namespace {

using engine::OptimizerOption;
using engine::OptimizerSpec;

// For as long as the program runs: rows of the option table point to text.
const char* kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text)).c_str();
}

// "0.05 for sgd, 0.001 for adamw"
std::string defaults_text(double OptimizerSpec::*value) {
  std::string text;
  for (const OptimizerSpec* spec : engine::optimizers())
    text += (text.empty() ? "" : ", ") + io::shortest_text(spec->*value) + " for " + spec->name;
  return text;
}

std::string initial_text(const OptimizerOption& option) {
  if (option.kind == OptimizerOption::Kind::kFlag) return option.initial != 0 ? "true" : "false";
  return io::shortest_text(option.initial);
}

OptionSpec row_of(const OptimizerOption& option) {
  using Kind = OptimizerOption::Kind;
  const bool flag = option.kind == Kind::kFlag, count = option.kind == Kind::kCount;
  return {.name = option.name,
          .type = flag    ? OptionSpec::Type::kFlag
                  : count ? OptionSpec::Type::kInteger
                          : OptionSpec::Type::kReal,
          .default_value = kept(initial_text(option)),
          .metavar = flag    ? ""
                     : count ? "N"
                             : "F",
          .group = "optimizer",
          .help = option.help,
          .agreement = OptionSpec::Agreement::kEqual};
}

const OptimizerSpec& chosen(const std::string& name) { return *engine::find_optimizer(name); }

double read_option(const ValueReader& read, const OptimizerOption& option) {
  switch (option.kind) {
    case OptimizerOption::Kind::kFlag:
      return read.flag(option.name) ? 1 : 0;
    case OptimizerOption::Kind::kFraction:
      return read.real(option.name, 0, std::nextafter(1.0, 0.0), option.initial,
                       "a number from 0 to below 1");
    case OptimizerOption::Kind::kPositive:
      return read.positive(option.name, 1, option.initial);
    case OptimizerOption::Kind::kCount:
      break;
  }
  return read.small(option.name, 1, 100, static_cast<int>(option.initial));
}

void check_average_state(const ValueReader& read, const OptimizerSpec& spec,
                         const RunConfig& config) {
  if (config.average_state != "momentum") return;
  const std::vector<engine::OptimizerState> states =
      engine::states_of(spec, config.optimizer_settings);
  if (std::ranges::find(states, engine::StateRole::kFirstMoment, &engine::OptimizerState::role) !=
      states.end())
    return;
  std::string needed = "an optimizer with momentum";
  for (const engine::OptimizerState& state : spec.states)
    if (state.role == engine::StateRole::kFirstMoment && state.needs != nullptr)
      needed = "--" + std::string(state.needs) + " above 0: without it " + spec.name +
               " has no momentum to average";
  read.demand("average-state", needed);
}

}  // namespace

std::vector<OptionSpec> optimizer_option_rows() {
  using enum OptionSpec::Type;
  using enum OptionSpec::Agreement;
  std::string names;
  for (const OptimizerSpec* spec : engine::optimizers())
    names += (names.empty() ? "" : "|") + std::string(spec->name);
  std::vector<OptionSpec> rows{
      {"optimizer", kChoice, engine::optimizers().front()->name, kept(names), "optimizer",
       "update rule", kEqual},
      {"lr", kReal, "", "F", "optimizer",
       kept("learning rate (default: " + defaults_text(&OptimizerSpec::lr) + ")"), kEqual},
      {"weight-decay", kReal, "", "F", "optimizer",
       kept("pull of weights to zero (default: " + defaults_text(&OptimizerSpec::weight_decay) +
            ")"),
       kEqual}};
  for (const OptimizerSpec* spec : engine::optimizers())
    for (const OptimizerOption& option : spec->options) rows.push_back(row_of(option));
  return rows;
}

std::vector<OptimizerOwner> optimizer_option_owners() {
  std::vector<OptimizerOwner> owners;
  for (const OptimizerSpec* spec : engine::optimizers())
    for (const OptimizerOption& option : spec->options) owners.push_back({option.name, spec->name});
  return owners;
}

void complete_by_optimizer(ConfigValues& values) {
  const OptimizerSpec& spec = chosen(values.at("optimizer").value);
  for (const auto& [name, value] :
       {std::pair{"lr", spec.lr}, std::pair{"weight-decay", spec.weight_decay}})
    if (values.at(name).value.empty()) values.at(name) = {io::shortest_text(value), "default"};
}

void read_optimizer(const ValueReader& read, RunConfig& config) {
  config.optimizer = read.text("optimizer");
  const OptimizerSpec& spec = chosen(config.optimizer);
  engine::OptimizerSettings& settings = config.optimizer_settings;
  config.lr = settings["lr"] = read.positive("lr", 1e6, 0);
  settings["weight-decay"] =
      read.real("weight-decay", 0, std::numeric_limits<double>::max(), 0, "a number, 0 or above");
  for (const OptimizerOption& option : spec.options)
    settings[option.name] = read_option(read, option);
  for (const OptimizerOption& option : spec.options)
    if (option.needs != nullptr && settings[option.name] != 0 && settings[option.needs] == 0)
      read.demand(option.name, "--" + std::string(option.needs) + " above 0");
  check_average_state(read, spec, config);
}

}  // namespace tools
