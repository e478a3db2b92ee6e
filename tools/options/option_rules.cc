// The tables of excluding and dependent options, and the ranges' messages.
#include "tools/options/option_rules.h"

#include <algorithm>

#include "io/base/files/io_error.h"
#include "io/base/text/text_format.h"
#include "io/base/text/text_parts.h"
#include "tools/options/optimizer_options.h"

namespace tools {
namespace {

struct Exclusion {
  const char *one, *other;
};
constexpr Exclusion kExclusions[] = {{"epochs", "steps"},
                                     {"batch-size", "batch-size-per-device"},
                                     {"gpu-devices", "devices"},
                                     {"ema", "average-last"},
                                     {"early-stop", "average-last"},
                                     {"sync-schedule", "sync-every"},
                                     {"sync-schedule", "sync-warmup"},
                                     {"data-dir", "annotations"},
                                     {"columns", "ignore-columns"},
                                     {"spawn", "rank"},
                                     {"spawn", "world-size"},
                                     {"spawn", "local-rank"},
                                     {"spawn", "init-method"}};

// `option` means something only when `other` is, or lists, one of the choices; "*" is any text.
struct Dependence {
  const char *option, *other, *choices;
};
constexpr const char* kParameterPolicies = "params|post-local|slowmo|diloco";
constexpr Dependence kDependences[] = {
    {"ema", "sync", "grad"},
    {"average-last", "sync", "grad|params|post-local|slowmo|diloco"},
    {"average-last", "reduction-order", "fast"},
    {"sync-every", "sync", kParameterPolicies},
    {"sync-warmup", "sync", kParameterPolicies},
    {"sync-schedule", "sync", kParameterPolicies},
    {"sync-island", "sync", kParameterPolicies},
    {"average-state", "sync", kParameterPolicies},
    {"average-buffers", "sync", kParameterPolicies},
    {"outer-lr", "sync", "diloco"},
    {"outer-momentum", "sync", "diloco"},
    {"outer-nesterov", "sync", "diloco"},
    {"slowmo-alpha", "sync", "slowmo"},
    {"slowmo-beta", "sync", "slowmo"},
    {"compress", "sync", "grad"},
    {"topk-ratio", "compress", "topk"},
    {"powersgd-rank", "compress", "powersgd"},
    {"compress", "reduction-order", "fast"},
    {"bucket-cap-mb", "reduction-order", "fast"},
    {"delay-allreduce", "reduction-order", "fast"},
    {"bucket-cap-mb", "sync", "grad|post-local|slowmo|diloco"},
    {"delay-allreduce", "sync", "grad|post-local|slowmo|diloco"},
    {"shard-optimizer", "sync", "grad"},
    {"reduction-order", "sync", "grad"},
    {"reduction-shards", "reduction-order", "canonical"},
    {"elastic-batch", "elastic", "*"},
    {"on-desync", "verify-every", "*"},
    {"lr-step-epochs", "lr-schedule", "step"},
    {"lr-gamma", "lr-schedule", "step"},
    {"lr-min", "lr-schedule", "cosine"},
    {"context", "dataset", "text|tinyshakespeare|tokens"},
    {"text-stride", "dataset", "text|tinyshakespeare|tokens"},
    {"vocabulary-size", "dataset", "tokens"},
    {"token-bits", "dataset", "tokens"},
    {"image-size", "dataset", "images"},
    {"image-cache-mb", "dataset", "images"},
    {"annotations", "dataset", "csv"},
    {"label-column", "dataset", "csv"},
    {"loss", "task", "regression"},
    {"label-smoothing", "task", "classification"},
    {"tensorboard-samples", "task", "classification"},
    {"csv-header", "dataset", "csv"},
    {"columns", "dataset", "csv"},
    {"ignore-columns", "dataset", "csv"},
    {"separator", "dataset", "csv"},
    {"csv-decimal", "dataset", "csv"},
    {"csv-missing", "dataset", "csv"},
    {"test-share", "dataset", "csv"},
    {"crop-padding", "augment", "crop"},
    {"cutout-size", "augment", "cutout"},
    {"synthetic-shape", "dataset", "synthetic"},
    {"synthetic-size", "dataset", "synthetic"},
    {"synthetic-classes", "dataset", "synthetic"},
    {"save-every", "save-dir", "*"},
    {"keep-last", "save-dir", "*"},
    {"save-rank-models", "save-dir", "*"},
    {"save-async", "save-dir", "*"},
    {"overwrite", "save-dir", "*"},
    {"preempt-signal", "save-dir", "*"},
    {"requeue", "save-dir", "*"},
    {"allow-mismatch", "init-from", "*"},
    {"init-coding", "init-from", "*"},
    {"trace-steps", "trace", "*"},
    {"sampler", "shuffle", "true"},
    {"rank", "world-size", "*"},
    {"loss-scale", "amp", "bf16|O1|O2"},
    {"non-blocking", "pin-memory", "true"},
};

std::string shown(const std::string& name, const ConfigValue& value) {
  return "--" + name + " is '" + value.value + "' (from " + value.source + ")";
}

void unset(ConfigValue& value) { value = {"", "not used"}; }

void apply_exclusion(const Exclusion& rule, ConfigValues& values) {
  ConfigValue &one = values.find(rule.one)->second, &other = values.find(rule.other)->second;
  const bool idle = one.value.empty() || other.value.empty() ||
                    (std::string_view(rule.one) == "spawn" && one.value == "0");
  if (idle) return;
  const Precedence strength = precedence_of(one), other_strength = precedence_of(other);
  if (strength == other_strength)
    throw io::ConfigError(shown(rule.one, one) + " and " + shown(rule.other, other) +
                          " exclude each other; give only one");
  unset(strength < other_strength ? one : other);
}

bool is_met(const Dependence& rule, const ConfigValue& other) {
  if (std::string_view(rule.choices) == "*") return !other.value.empty();
  const std::vector<std::string> choices = base::split_text(rule.choices, '|'),
                                 parts = base::split_text(other.value, ',');
  return std::ranges::find_first_of(parts, choices) != parts.end();
}

// What asks for nothing needs nothing: no value, what nobody gave, and switches and choices that
// are off.
bool asks_for_nothing(const ConfigValue& option) {
  return option.value.empty() || option.value == "false" || option.value == "none" ||
         precedence_of(option) == Precedence::kDefault;
}

void apply_dependence(const Dependence& rule, ConfigValues& values) {
  ConfigValue& option = values.find(rule.option)->second;
  const ConfigValue& other = values.find(rule.other)->second;
  if (is_met(rule, other)) return;
  if (!asks_for_nothing(option) && precedence_of(option) >= precedence_of(other)) {
    const std::string choices =
        std::string_view(rule.choices) == "*" ? "" : " " + std::string(rule.choices);
    const std::string found = other.value.empty() ? "" : "; " + shown(rule.other, other);
    demand(rule.option, option, std::string("--") + rule.other + choices + found);
  }
  unset(option);
}

// "cpu" or "cuda" where the value names one kind.
std::string_view kind_named(const ConfigValue& value, bool numbers) {
  const std::string& text = value.value;
  if (text.empty() || text == "auto") return "";
  if (numbers) return text == "none" ? "cpu" : "cuda";
  return text.starts_with("cpu") ? "cpu" : "cuda";
}

// --device and the lists beside it name devices of one kind, and the list says which.
void apply_device_rule(const char* list_name, ConfigValues& values) {
  ConfigValue &one = values.find("device")->second, &list = values.find(list_name)->second;
  const std::string_view kind = kind_named(one, false),
                         list_kind = kind_named(list, std::string_view(list_name) == "gpu-devices");
  if (kind.empty() || list_kind.empty() ||
      (kind == list_kind && one.value.find(':') == std::string::npos))
    return;
  const Precedence strength = precedence_of(one), list_strength = precedence_of(list);
  if (strength == list_strength)
    throw io::ConfigError(shown("device", one) + " and " + shown(list_name, list) +
                          " contradict each other; give only one");
  if (strength < list_strength)
    one = {"auto", "not used"};
  else
    unset(list);
}

}  // namespace

std::vector<std::string> options_requiring(std::string_view other) {
  std::vector<std::string> names;
  for (const Dependence& rule : kDependences)
    if (rule.other == other) names.emplace_back(rule.option);
  return names;
}

void apply_option_rules(ConfigValues& values) {
  for (const Exclusion& rule : kExclusions) apply_exclusion(rule, values);
  apply_device_rule("gpu-devices", values);
  apply_device_rule("devices", values);
  for (const Dependence& rule : kDependences) apply_dependence(rule, values);
  for (const OptimizerOwner& owner : optimizer_option_owners())
    apply_dependence({owner.option, "optimizer", owner.optimizer}, values);
}

void refuse_value(const std::string& name, const ConfigValue& value, const std::string& expected,
                  const std::string& hint) {
  throw io::ConfigError(shown(name, value) + (hint.empty()
                                                  ? "; expected " + expected
                                                  : hint + " (expected " + expected + ")"));
}

void demand(const std::string& name, const ConfigValue& value, const std::string& requirement) {
  const OptionSpec::Type type = find_option(name)->type;
  const bool named = type == OptionSpec::Type::kChoice || type == OptionSpec::Type::kString;
  const std::string option = "--" + name,
                    source = value.source == option ? "" : " (from " + value.source + ")";
  throw io::ConfigError(option + (named ? " " + value.value : "") + source + " requires " +
                        requirement);
}

std::int64_t ValueReader::integer(const char* name, std::int64_t low, std::int64_t high,
                                  std::int64_t unset) const {
  if (text(name).empty()) return unset;
  const std::optional<std::int64_t> value = parse_integer(text(name));
  if (!value || *value < low || *value > high)
    refuse(name, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return *value;
}

std::optional<int> ValueReader::maybe(const char* name, int low, int high) const {
  return text(name).empty() ? std::nullopt : std::optional(small(name, low, high, low));
}

double ValueReader::real(const char* name, double low, double high, double unset,
                         const char* expected) const {
  if (text(name).empty()) return unset;
  const std::optional<double> value = parse_real(text(name));
  if (!value || *value < low || *value > high) refuse(name, expected);
  return *value;
}

double ValueReader::positive(const char* name, double high, double unset) const {
  using Limits = std::numeric_limits<double>;
  const double value = real(name, Limits::min(), Limits::max(), unset, "a number above 0");
  if (value > high) refuse(name, "at most " + io::shortest_text(high));
  return value;
}

}  // namespace tools
