// Writes resolved values as TOML and as settings to agree on.
#include <cstdio>

#include "io/base/digests/digest.h"
#include "tools/options/table/run_config.h"

namespace tools {
namespace {

std::string toml_string(const std::string& text) {  // TOML 1.0, basic string
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += std::string{'\\', c};
    } else if (code < 0x20 || code == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04X", code);
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string toml_value(const OptionSpec& option, const std::string& value) {
  switch (option.type()) {
    case OptionSpec::Type::kInteger:
    case OptionSpec::Type::kReal:
    case OptionSpec::Type::kFlag:
      // A value of another type is quoted, so that it is rejected when it is read back.
      return canonical_text(option, value).value_or(toml_string(value));
    default:
      return toml_string(value);
  }
}

// Shortens a value, so that all settings fit into one message.
std::string shortened(const std::string& value) {
  constexpr std::size_t kLongest = 200, kKept = 100;
  if (value.size() <= kLongest) return value;
  return value.substr(0, kKept) + "... (digest " + base::hex_text(base::short_digest_of(value)) +
         ")";
}

// Writes the options that are set, in tables by group, each with `spelt(value)`.
template <class Spelling>
std::string toml_tables(const ConfigValues& values, Spelling spelt) {
  std::string text, group;
  for (const OptionSpec& option : train_options()) {
    const auto entry = values.find(option.name);
    if (entry == values.end() || entry->second.value.empty()) continue;
    if (group != option.group) {
      group = option.group;
      text += (text.empty() ? "[" : "\n[") + group + "]\n";
    }
    text +=
        std::string(option.name) + " = " + toml_value(option, spelt(entry->second.value)) + "\n";
  }
  return text;
}

}  // namespace

std::string to_toml(const ConfigValues& values) {
  return toml_tables(values, [](const std::string& value) { return value; });
}

std::string to_config_file(const ConfigValues& values) {
  return toml_tables(values, [](const std::string& value) {
    std::string escaped;
    for (const char c : value) escaped += c == '$' ? "$$" : std::string(1, c);
    return escaped;
  });
}

std::vector<std::pair<std::string, std::string>> agreed_settings(const ConfigValues& values) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const OptionSpec& option : train_options()) {
    if (option.agreement == OptionSpec::Agreement::kFree) continue;
    const auto entry = values.find(option.name);
    const std::string value = entry == values.end() ? option.default_value : entry->second.value;
    const bool presence = option.agreement == OptionSpec::Agreement::kPresence;
    const std::string covered =
        presence ? (value.empty() ? "" : "a value") : canonical_text(option, value).value_or(value);
    settings.emplace_back(std::string("--") + option.name, shortened(covered));
  }
  return settings;
}

}  // namespace tools
