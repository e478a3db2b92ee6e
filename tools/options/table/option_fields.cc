// Implements kinds of values that need no template.
#include "tools/options/table/option_fields.h"

#include <cmath>

#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using Limits = std::numeric_limits<double>;

// Makes a real number that `set` and `get` store in another unit.
template <class Set, class Get>
OptionField real_field(const RealRange& range, Set set, Get get) {
  return {OptionSpec::Type::kReal,
          {},
          [=](RunConfig& config, const std::string& value) {
            const double number = parse_real(value).value();
            std::optional<ValueFault> fault = range_fault(number, range);
            if (!fault) set(config, number);
            return fault;
          },
          [=](RunConfig& config) {
            const double number = get(config);
            return range_fault(number, range) ? std::string() : base::shortest_text(number);
          }};
}

OptionField flag_field(Member<bool> member, bool opposite) {
  return {OptionSpec::Type::kFlag,
          {},
          [=](RunConfig& config, const std::string& value) -> std::optional<ValueFault> {
            *member(config) = (value == "true") != opposite;
            return std::nullopt;
          },
          [=](RunConfig& config) { return *member(config) != opposite ? "true" : "false"; }};
}

}  // namespace

std::optional<ValueFault> range_fault(double value, const RealRange& range) {
  if (!(value >= range.low && value <= range.high)) return ValueFault{range.expected};
  if (value > range.cap) return ValueFault{"at most " + base::shortest_text(range.cap)};
  return std::nullopt;
}

RealRange positive(double cap) { return {Limits::min(), Limits::max(), "a number above 0", cap}; }
RealRange not_negative() { return {0, Limits::max(), "a number, 0 or above"}; }
RealRange fraction() { return {0, std::nextafter(1.0, 0.0), "a number from 0 to below 1"}; }
RealRange from_zero_to(double high) {
  return {0, high, "a number from 0 to " + base::shortest_text(high)};
}

OptionField text(Member<std::string> member) {
  return {OptionSpec::Type::kString,
          {},
          [=](RunConfig& config, const std::string& value) -> std::optional<ValueFault> {
            *member(config) = value;
            return std::nullopt;
          },
          [=](RunConfig& config) { return *member(config); }};
}

OptionField word(Member<std::string> member, std::vector<std::string> choices) {
  OptionField field = text(member);
  field.type = OptionSpec::Type::kChoice;
  field.choices = std::move(choices);
  return field;
}

OptionField flag(Member<bool> member) { return flag_field(member, false); }
OptionField opposite_flag(Member<bool> member) { return flag_field(member, true); }

OptionField real(Member<double> member, RealRange range) {
  return real_field(
      range, [=](RunConfig& config, double value) { *member(config) = value; },
      [=](RunConfig& config) { return *member(config); });
}

OptionField real_or_auto(Member<std::optional<double>> member, RealRange range) {
  return {OptionSpec::Type::kString,
          {},
          [=](RunConfig& config, const std::string& value) -> std::optional<ValueFault> {
            const std::optional<double> number = parse_real(value);
            if (!number && value != "auto") return ValueFault{"auto, or " + range.expected};
            if (number)
              if (auto fault = range_fault(*number, range)) return fault;
            *member(config) = number;
            return std::nullopt;
          },
          [=](RunConfig& config) {
            const std::optional<double> number = *member(config);
            return number ? base::shortest_text(*number) : "auto";
          }};
}

OptionField seconds(Member<int> member, bool or_zero) {
  constexpr double kLongest = 2'000'000;  // the maximum that fits an int in milliseconds
  const RealRange range = or_zero
                              ? RealRange{0, Limits::max(), "0 or a number of seconds", kLongest}
                              : positive(kLongest);
  return real_field(
      range,
      [=](RunConfig& config, double value) {
        *member(config) = static_cast<int>(std::llround(value * 1000));
      },
      [=](RunConfig& config) { return *member(config) / 1000.0; });
}

OptionField mebibytes(Member<std::int64_t> member, double high) {
  constexpr double kUnit = 1 << 20;
  return real_field(
      positive(high),
      [=](RunConfig& config, double value) {
        *member(config) = static_cast<std::int64_t>(value * kUnit);
      },
      [=](RunConfig& config) { return static_cast<double>(*member(config)) / kUnit; });
}

OptionField interval(Member<engine::Every> member) {
  OptionField field{OptionSpec::Type::kInterval};
  field.store = [=](RunConfig& config, const std::string& value) -> std::optional<ValueFault> {
    const Interval interval_of_text = parse_interval(value).value();
    *member(config) = {interval_of_text.every, interval_of_text.epochs};
    return std::nullopt;
  };
  return field;
}

OptionField patterns(Member<std::vector<std::string>> member) {
  OptionField field;
  field.store = [=](RunConfig& config, const std::string& value) -> std::optional<ValueFault> {
    *member(config) = base::split_text(value, ',');
    if (std::ranges::count(*member(config), "") == 0) return std::nullopt;
    return ValueFault{"patterns of names (* and ?) with commas between them, as layer1.*,fc.bias"};
  };
  return field;
}

OptionField parsed(std::optional<ValueFault> (*store)(RunConfig&, const std::string& text),
                   OptionSpec::Type type) {
  OptionField field{type};
  field.store = store;
  return field;
}

}  // namespace tools
