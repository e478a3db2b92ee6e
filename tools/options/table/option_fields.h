// Makes the fields of options: kinds of values with their ranges, each bound to a member of the
// structures that the parts of a training run take.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tools/options/table/option_spec.h"
#include "tools/options/table/run_config.h"
#include "tools/options/table/value_text.h"

namespace tools {

// Returns the member that holds a value: [](RunConfig& c) { return &c.seed; }
template <class T>
using Member = T* (*)(RunConfig&);
// The type of the member that such a function returns.
template <class Function>
using MemberType = std::remove_pointer_t<std::invoke_result_t<Function, RunConfig&>>;

struct RealRange {
  double low, high;
  std::string expected;
  double cap = std::numeric_limits<double>::max();  // reported as "at most"
};
RealRange positive(double cap);  // above 0
RealRange not_negative();
RealRange fraction();  // from 0 to below 1
RealRange from_zero_to(double high);
std::optional<ValueFault> range_fault(double value, const RealRange& range);  // nothing: valid

OptionField text(Member<std::string> member);
OptionField flag(Member<bool> member);
OptionField opposite_flag(Member<bool> member);  // the member is true if the option is false
OptionField real(Member<double> member, RealRange range);
OptionField real_or_auto(Member<std::optional<double>> member, RealRange range);  // no value: auto
// Seconds from above 0, or from 0, stored as milliseconds.
OptionField seconds(Member<int> member, bool or_zero = false);
OptionField mebibytes(Member<std::int64_t> member, double high);  // a real number, stored as bytes
OptionField interval(Member<engine::Every> member);
// Text that the part takes unchanged.
OptionField word(Member<std::string> member, std::vector<std::string> choices);
// Names separated by commas; empty names are rejected.
OptionField patterns(Member<std::vector<std::string>> member);

// `store` stores a text, or returns why it is rejected.
OptionField parsed(std::optional<ValueFault> (*store)(RunConfig&, const std::string& text),
                   OptionSpec::Type type = OptionSpec::Type::kString);

template <class T>
OptionField integer_field(Member<T> member, std::int64_t low, std::int64_t high,
                          std::int64_t unit) {
  OptionField field{OptionSpec::Type::kInteger};
  field.store = [=](RunConfig& config, const std::string& value) -> std::optional<ValueFault> {
    const auto number = parse_integer(value);
    if (!number || *number < low || *number > high)
      return ValueFault{"an integer from " + std::to_string(low) + " to " + std::to_string(high)};
    using Number = typename decltype(std::optional(*member(config)))::value_type;
    *member(config) = static_cast<Number>(*number * unit);
    return std::nullopt;
  };
  field.text = [=](RunConfig& config) -> std::string {
    const auto value = std::optional(*member(config));
    if (!value) return "";
    const std::int64_t number = static_cast<std::int64_t>(*value) / unit;
    return number < low || number > high ? "" : std::to_string(number);
  };
  return field;
}
// The member, an integer or an optional one, holds a multiple of `unit`. It is unset if it has no
// value, or one outside the range.
template <class Function>
OptionField integer(Function member, std::int64_t low, std::int64_t high, std::int64_t unit = 1) {
  return integer_field<MemberType<Function>>(member, low, high, unit);
}

// A choice and its value.
template <class T>
struct Word {
  std::string text;
  T value;
};
template <class T>
OptionField choice_field(Member<T> member, const std::vector<Word<T>>& words) {
  OptionField field{OptionSpec::Type::kChoice};
  for (const Word<T>& word : words) field.choices.push_back(word.text);
  field.store = [=](RunConfig& config, const std::string& value) -> std::optional<ValueFault> {
    *member(config) = std::ranges::find(words, value, &Word<T>::text)->value;
    return std::nullopt;
  };
  field.text = [=](RunConfig& config) -> std::string {
    const auto found = std::ranges::find(words, *member(config), &Word<T>::value);
    return found == words.end() ? "" : found->text;
  };
  return field;
}
template <class Function, class T = MemberType<Function>>
OptionField choice(Function member, const std::vector<Word<T>>& words) {
  return choice_field<T>(member, words);
}

}  // namespace tools
