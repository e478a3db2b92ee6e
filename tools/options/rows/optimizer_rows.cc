// Defines the options for optimizer and learning rate. The rows of optimizers come from their
// descriptors.
#include "tools/options/table/option_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/optim/optimizer_spec.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using enum OptionSpec::Agreement;
using enum OptionSpec::OnResume;
using enum OptionSpec::Arrays;

using engine::OptimizerOption;
using engine::OptimizerSettings;
using engine::OptimizerSpec;
using Scale = UpdateOptions::RateScale;
using Schedule = engine::LearningRate::Schedule;
using Decay = engine::LearningRate::Decay;

// Returns e.g. "0.05 for sgd, 0.001 for adamw".
std::string defaults_text(double OptimizerSpec::*value) {
  std::string text;
  for (const OptimizerSpec* spec : engine::optimizers())
    text += (text.empty() ? "" : ", ") + base::shortest_text(spec->*value) + " for " + spec->name;
  return text;
}

// The properties of a row that follow from the kind of an optimizer's option.
struct KindTraits {
  OptionSpec::Type type;
  RealRange range;
  double other;  // another valid value than the default
};
KindTraits traits_of(const OptimizerOption& option) {
  switch (option.kind) {
    case OptimizerOption::Kind::kFlag:
      return {OptionSpec::Type::kFlag, from_zero_to(1), 1 - option.initial};
    case OptimizerOption::Kind::kFraction:
      return {OptionSpec::Type::kReal, fraction(), (1 + option.initial) / 2};
    case OptimizerOption::Kind::kPositive:
      return {OptionSpec::Type::kReal, positive(1), option.initial / 10};
    case OptimizerOption::Kind::kCount:
      return {
          OptionSpec::Type::kInteger,
          {1.0, 1.0 * option.max_count, "an integer from 1 to " + std::to_string(option.max_count)},
          option.initial + 1};
  }
  std::abort();  // the compiler names a kind that is missing above
}

// Returns e.g. "--optimizer lion --lion-beta1 0.95".
std::string example_of(const OptimizerSpec& spec, const OptimizerOption& option) {
  const KindTraits traits = traits_of(option);
  const std::string chosen =
      &spec == engine::optimizers().front() ? "" : "--optimizer " + std::string(spec.name) + " ";
  if (traits.type == OptionSpec::Type::kFlag)
    return chosen + (traits.other == 0 ? "--no-" : "--") + option.name;
  return chosen + "--" + option.name + " " + base::number_text("%g", traits.other);
}

OptionSpec row_of(const OptimizerSpec& spec, const OptimizerOption& option) {
  OptionField field{traits_of(option).type};
  const bool is_flag = field.type == OptionSpec::Type::kFlag;
  field.store = [&spec, &option, is_flag](RunConfig& config, const std::string& text) {
    const double value = is_flag ? static_cast<double>(text == "true") : parse_real(text).value();
    if (config.update.optimizer == &spec) config.update.settings[option.name] = value;
    return range_fault(value, traits_of(option).range);
  };
  return {.name = option.name,
          .field = std::move(field),
          .initial = is_flag ? (option.initial != 0 ? "true" : "false")
                             : base::shortest_text(option.initial),
          .help = option.help,
          .example = example_of(spec, option),
          .needs = {is("optimizer", spec.name)}};
}

std::vector<OptionSpec> rows_of_optimizers() {
  std::vector<Word<const OptimizerSpec*>> names;
  for (const OptimizerSpec* spec : engine::optimizers()) names.push_back({spec->name, spec});
  std::vector<OptionSpec> rows{
      {.name = "optimizer",
       .field = choice([](RunConfig& c) { return &c.update.optimizer; }, names),
       .help = "update rule",
       .example = "--optimizer adamw",
       .on_resume = kReject},
      {.name = "lr",
       .field = real([](RunConfig& c) { return &c.update.rate.base; }, positive(1e6)),
       .initial = "",
       .help = "learning rate (default: " + defaults_text(&OptimizerSpec::lr) + ")",
       .example = "--lr 0.1"},
      {.name = "weight-decay",
       .field =
           real([](RunConfig& c) { return &c.update.settings["weight-decay"]; }, not_negative()),
       .initial = "",
       .help = "weight decay coefficient (default: " + defaults_text(&OptimizerSpec::weight_decay) +
               ")",
       .example = "--weight-decay 0.0005"}};
  for (const OptimizerSpec* spec : engine::optimizers())
    for (const OptimizerOption& option : spec->options) rows.push_back(row_of(*spec, option));
  return rows;
}

std::optional<ValueFault> take_milestones(RunConfig& config, const std::string& text) {
  std::vector<std::int64_t>& epochs = config.update.milestone_epochs;
  epochs = parse_integer_list(text).value();
  const bool ascending = std::ranges::adjacent_find(epochs, std::greater_equal<>()) == epochs.end();
  if (epochs.front() >= 1 && ascending) return std::nullopt;
  return ValueFault{"ascending epochs from 1 (30,60)"};
}

// Accepts e.g. "fc.*=10x,layer4.*=0.5x".
std::optional<ValueFault> take_rate_groups(RunConfig& config, const std::string& text) {
  for (const std::string& group : base::split_text(text, ',')) {
    const std::size_t equals = group.rfind('=');
    std::string factor = equals == std::string::npos ? "" : group.substr(equals + 1);
    if (factor.ends_with('x')) factor.pop_back();
    const auto value = parse_real(factor);
    if (equals == 0 || !value || *value <= 0 || *value > 1e6)
      return ValueFault{
          "patterns of names with a factor above 0, as fc.*=10x; what is not to be trained at all "
          "is --freeze"};
    config.update.rate_groups.emplace_back(group.substr(0, equals), *value);
  }
  return std::nullopt;
}

// Demands a state for each period.
void check_average_state(const GivenValues& given, const RunConfig& config) {
  using engine::StateRole;
  const AveragingOptions::States& states = config.averaging.states;
  const OptimizerSpec& spec = *config.update.optimizer;
  const std::vector<engine::OptimizerState> kept = engine::states_of(spec, config.update.settings);
  const auto has = [&](StateRole role) {
    return std::ranges::count(kept, role, &engine::OptimizerState::role) > 0;
  };
  if (states.second > 0 && !has(StateRole::kSecondMoment))
    given.demand("average-state", "an optimizer with second moments, as adamw, for second:Q");
  // Averaged alone, a first moment may meet a second one of zero, e.g. of a weight that only other
  // ranks train: the update divides one by the root of the other.
  const bool is_multiple = states.second > 0 && states.first % states.second == 0;
  if (states.first > 0 && has(StateRole::kSecondMoment) && !is_multiple)
    given.refuse("average-state",
                 "momentum:P,second:Q with P a multiple of Q, or all: " + std::string(spec.name) +
                     " divides first moments by second ones, which have to be "
                     "averaged with them");
  if (states.first == 0 || has(StateRole::kFirstMoment)) return;
  std::string needed = "an optimizer with momentum";
  for (const engine::OptimizerState& state : spec.states)
    if (state.role == StateRole::kFirstMoment && state.needs != nullptr)
      needed = "--" + std::string(state.needs) + " above 0: without it " + spec.name +
               " has no momentum to average";
  given.demand("average-state", needed);
}

void check_frozen(const GivenValues& given, const RunConfig& config) {
  if (!config.update.optimizer->by_ranges)
    for (const char* name : {"freeze", "lr-group", "no-decay"})
      if (given.has(name))
        given.demand(name, "another --optimizer than " + given.text("optimizer") +
                               ", which updates matrices as a whole: sgd, adamw or lion");
  if (given.has("freeze") &&
      (config.buffers == engine::BufferMode::kAverage || config.averaging.running_statistics))
    given.demand("freeze",
                 "--buffers local or rank0 and no --average-buffers: means of running statistics "
                 "would not leave those of frozen layers as they are");
}

void check_optimizer(const GivenValues& given, RunConfig& config) {
  UpdateOptions& update = config.update;
  const OptimizerSettings own = engine::default_settings(*update.optimizer);
  std::erase_if(update.settings, [&](const auto& setting) { return !own.contains(setting.first); });
  for (const OptimizerOption& option : update.optimizer->options)
    if (option.needs != nullptr && update.settings[option.name] != 0 &&
        update.settings[option.needs] == 0)
      given.demand(option.name, "--" + std::string(option.needs) + " above 0");
  check_average_state(given, config);
  check_frozen(given, config);
  if (given.has("no-decay") && update.settings["weight-decay"] == 0)
    given.demand("no-decay", "--weight-decay above 0");
  update.settings["lr"] = update.rate.base;
  if (update.rate.minimum > update.rate.base) given.refuse("lr-min", "a number from 0 to --lr");
}

const std::vector<OptionSpec> kOptimizerRows{
    {.name = "lr-scale",
     .field =
         choice([](RunConfig& c) { return &c.update.scale; },
                {{"none", Scale::kNone}, {"linear", Scale::kLinear}, {"sqrt", Scale::kSquareRoot}}),
     .help = "multiply the learning rate by the number of ranks or its square root",
     .example = "--spawn 4 --lr-scale linear"},
    {.name = "lr-schedule",
     .field = choice([](RunConfig& c) { return &c.update.rate.schedule; },
                     {{"constant", Schedule::kConstant},
                      {"step", Schedule::kStep},
                      {"cosine", Schedule::kCosine},
                      {"linear", Schedule::kLinear},
                      {"wsd", Schedule::kStableDecay}}),
     .help = "learning rate over time; wsd: warm-up, then stable, then decay",
     .example = "--lr-schedule cosine",
     .demands = {{is("step"), {given("lr-milestones")}, "--lr-milestones (30,60)"}}},
    {.name = "lr-warmup-steps",
     .field = integer([](RunConfig& c) { return &c.update.rate.warmup_steps; }, 0, kMaxCount),
     .help = "increase the learning rate linearly during the first N steps",
     .example = "--lr-warmup-steps 500"},
    {.name = "lr-milestones",
     .alias = "lr-step-epochs",
     .field = parsed(take_milestones, OptionSpec::Type::kList),
     .metavar = "E,E,...",
     .help = "step schedule: epochs at which the rate is multiplied by --lr-gamma",
     .example = "--lr-schedule step --lr-milestones 30,60",
     .needs = {is("lr-schedule", "step")}},
    {.name = "lr-gamma",
     .field = real([](RunConfig& c) { return &c.update.rate.gamma; }, positive(1e6)),
     .help = "step schedule: factor at each milestone",
     .example = "--lr-schedule step --lr-milestones 30,60 --lr-gamma 0.2",
     .needs = {is("lr-schedule", "step")}},
    {.name = "lr-min",
     .field = real([](RunConfig& c) { return &c.update.rate.minimum; }, not_negative()),
     .help = "cosine, linear and wsd schedules: learning rate at the end",
     .example = "--lr-schedule cosine --lr-min 0.0001",
     .needs = {is("lr-schedule", "cosine|linear|wsd")}},
    {.name = "lr-decay-fraction",
     .field = real([](RunConfig& c) { return &c.update.rate.decay_fraction; }, positive(1)),
     .help = "wsd schedule: fraction of the steps after warm-up in which the rate falls",
     .example = "--lr-schedule wsd --lr-decay-fraction 0.1",
     .needs = {is("lr-schedule", "wsd")}},
    {.name = "lr-decay-shape",
     .field = choice(
         [](RunConfig& c) { return &c.update.rate.decay; },
         {{"sqrt", Decay::kSquareRoot}, {"linear", Decay::kLinear}, {"cosine", Decay::kCosine}}),
     .help = "wsd schedule: how the rate falls; sqrt: by 1 - sqrt(progress)",
     .example = "--lr-schedule wsd --lr-decay-shape linear",
     .needs = {is("lr-schedule", "wsd")}},
    {.name = "label-smoothing",
     .field = real([](RunConfig& c) { return &c.model.label_smoothing; }, fraction()),
     .help = "fraction of each label spread over all classes, in training only",
     .example = "--label-smoothing 0.1",
     .on_resume = kReject,
     .needs = {is("task", "classification")}},
    {.name = "class-weights",
     .field = text([](RunConfig& c) { return &c.data.set.class_weights; }),
     .metavar = "balanced|W,W,...",
     .help = "weights of classes (multi-label: of positives) in the training loss",
     .example = "--class-weights balanced",
     .on_resume = kReject,
     .needs = {is("task", "classification|multi-label")},
     .excludes = {"label-smoothing"}},
    {.name = "clip-grad",
     .field = real([](RunConfig& c) { return &c.update.clip_grad; }, not_negative()),
     .help = "maximum gradient norm (0: no clipping)",
     .example = "--clip-grad 1"},
    {.name = "freeze",
     .field = patterns([](RunConfig& c) { return &c.model.frozen; }),
     .metavar = "GLOB,...",
     .help = "do not train parameters whose names match, e.g. layer1.* (--dry-run lists names)",
     .example =
         "--model resnet18 --dataset images --init-from resnet18.pth --freeze 'conv1.*,layer1.*'",
     .on_resume = kReject},
    {.name = "lr-group",
     .field = parsed(take_rate_groups),
     .metavar = "GLOB=Fx,...",
     .help = "multiply the learning rate of matching parameters, e.g. fc.*=10x",
     .example = "--lr-group 'fc.*=10x'"},
    {.name = "no-decay",
     .field = patterns([](RunConfig& c) { return &c.update.no_decay; }),
     .metavar = "KIND|GLOB,...",
     .help = "no weight decay for norms, biases, embeddings, or parameters whose names match",
     .example = "--optimizer adamw --no-decay norms,biases"}};

}  // namespace

OptionGroup optimizer_rows() {
  OptionGroup group{"optimizer", rows_of_optimizers(), &check_optimizer};
  group.rows.insert(group.rows.end(), kOptimizerRows.begin(), kOptimizerRows.end());
  return group;
}

void complete_by_optimizer(ConfigValues& values) {
  const OptimizerSpec& spec = *engine::find_optimizer(values.at("optimizer").value);
  for (const auto& [name, value] :
       {std::pair{"lr", spec.lr}, std::pair{"weight-decay", spec.weight_decay}})
    if (values.at(name).value.empty())
      values.at(name) = {base::shortest_text(value), kDefaultSource};
}

}  // namespace tools
