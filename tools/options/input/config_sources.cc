// Implements the sources of values below the command line with toml++.
#include "tools/options/input/config_sources.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/nesting.h"
#include "io/base/formats/toml_parser.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "tools/options/input/config_variables.h"
#include "tools/options/table/value_text.h"

namespace tools {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;
constexpr std::size_t kDeepestInclude = 8;

// `included_at`: the place of the include; "" for the first file.
std::string read_config_text(const std::string& path, const std::string& included_at) {
  const std::string by = included_at.empty() ? "" : " (included at " + included_at + ")";
  try {
    return io::read_small_file(path, kLargestFile);
  } catch (const io::MissingFileError&) {
    throw io::ConfigError("config file " + path + by +
                          " cannot be read: no such file, or no permission");
  } catch (const io::DataError& error) {
    throw io::ConfigError(std::string("config file ") + error.what() + by);
  }
}

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a real number";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

// Applies one file to the values.
class ConfigFile {
 public:
  ConfigFile(const std::string& path, ConfigValues& values, std::vector<std::string>& open_files)
      : path_(path), values_(values), open_files_(open_files) {}

  void apply(const std::string& included_at = "");
  void apply_text(const std::string& text);  // without its includes

 private:
  [[noreturn]] void fail(const toml::node& node, const std::string& fault) const {
    throw io::ConfigError(place(node) + ": " + fault);
  }
  std::string place(const toml::node& node) const {
    return path_ + ":" + std::to_string(node.source().begin.line);
  }
  void take_table(const toml::table& table, const std::string& group);
  void take_option(const std::string& key, const toml::node& node, const std::string& group);
  void follow_includes(const toml::node& node);
  void check_text(const std::string& what, const std::string& text, const toml::node& node) const;
  std::string text_of(const OptionSpec& option, const toml::node& node) const;
  std::string expanded(const std::string& what, const std::string& text,
                       const toml::node& node) const;

  const std::string& path_;
  ConfigValues& values_;
  std::vector<std::string>& open_files_;  // canonical paths from the first file down to this one
  ConfigValues own_;                      // the values of this file itself
  toml::table table_;
  const toml::node* include_ = nullptr;  // in table_
  bool variables_ = false;               // true if ${NAME} is a variable
};

// [optimizer] was first spelled [optimiser]; files and checkpoints that have it remain readable.
std::string current_group_name(const std::string& name) {
  return name == "optimiser" ? "optimizer" : name;
}

bool is_group(std::string_view name) {
  return std::any_of(train_options().begin(), train_options().end(),
                     [&](const OptionSpec& o) { return name == o.group; });
}

// Returns the keys that a file may still have in a table: those of the group or, at the top level
// (""), of all groups, unless the file has them.
std::vector<std::string> free_keys(const toml::table& file, const std::string& group) {
  std::vector<std::string> names;
  const auto add = [&](const toml::table* table, const std::string& name) {
    const bool is_there = table != nullptr && table->contains(name);
    if (!is_there && std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  if (group.empty()) add(&file, "include");
  for (const OptionSpec& option : train_options()) {
    const toml::table* own = file[option.group].as_table();
    if (!group.empty() && option.group != group) continue;
    if (!file.contains(option.name)) add(own, option.name);
    if (group.empty()) add(&file, option.group);
  }
  return names;
}

void ConfigFile::apply(const std::string& included_at) {
  std::error_code ignored;
  const std::string canonical = std::filesystem::weakly_canonical(path_, ignored).string();
  if (std::find(open_files_.begin(), open_files_.end(), canonical) != open_files_.end())
    throw io::ConfigError("config file " + path_ + " includes itself, directly or through others");
  if (open_files_.size() >= kDeepestInclude)
    throw io::ConfigError("config file " + path_ + ": includes are more than 8 levels deep");
  open_files_.push_back(canonical);

  variables_ = true;
  apply_text(read_config_text(path_, included_at));
  if (include_ != nullptr) follow_includes(*include_);
  open_files_.pop_back();
}

void ConfigFile::apply_text(const std::string& text) {
  if (!io::toml_nests_within_limit(text))
    throw io::ConfigError(path_ + ": nests more than " + std::to_string(io::kMaxNesting) +
                          " levels deep; expected options, at most in [GROUP]");
  if (const auto line = io::line_of_stray_toml_character(text))
    throw io::ConfigError(path_ + ":" + std::to_string(*line) +
                          ": not TOML: a character outside of strings is not ASCII");
  try {
    table_ = toml::parse(text, path_);
  } catch (const toml::parse_error& error) {
    throw io::ConfigError(path_ + ":" + std::to_string(error.source().begin.line) +
                          ": not TOML: " + std::string(error.description()));
  }
  take_table(table_, "");
  for (const auto& [name, value] : own_) values_.try_emplace(name, value);
}

void ConfigFile::take_table(const toml::table& table, const std::string& group) {
  for (const auto& [toml_key, node] : table) {
    const std::string key(toml_key.str());
    if (group.empty() && key == "include") {
      include_ = &node;
    } else if (group.empty() && node.is_table() && is_group(current_group_name(key))) {
      take_table(*node.as_table(), current_group_name(key));
    } else {
      take_option(key, node, group);
    }
  }
}

void ConfigFile::take_option(const std::string& key, const toml::node& node,
                             const std::string& group) {
  const OptionSpec* option = find_option(key);
  if (option == nullptr) {
    fail(node, "unknown key '" + base::escape_text(key) + "'" +
                   base::did_you_mean(key, free_keys(table_, group)));
  }
  if (!group.empty() && group != option->group)
    fail(node, "'" + key + "' belongs in [" + option->group + "] or at the top level, not in [" +
                   group + "]");
  const auto [entry, added] =
      own_.try_emplace(option->name, ConfigValue{text_of(*option, node), place(node)});
  if (!added) fail(node, "'" + key + "' is given twice, first at " + entry->second.source);
}

bool may_be_written_as(OptionSpec::Type type, toml::node_type node) {
  using Type = OptionSpec::Type;
  switch (node) {
    case toml::node_type::string:
      return type != Type::kInteger && type != Type::kReal && type != Type::kFlag;
    case toml::node_type::integer:
      return type != Type::kFlag && type != Type::kList;
    case toml::node_type::floating_point:
      return type == Type::kReal || type == Type::kString || type == Type::kChoice;
    case toml::node_type::boolean:
      return type == Type::kFlag;
    case toml::node_type::array:
      return type == Type::kList || type == Type::kDevices;
    default:
      return false;
  }
}

std::string ConfigFile::text_of(const OptionSpec& option, const toml::node& node) const {
  if (const auto* text = node.as_string()) check_text(option.name, text->get(), node);
  if (const auto* text = node.as_string(); text && variables_ && has_variables(text->get())) {
    // A source of higher precedence has a value.
    const bool plays_no_part = values_.contains(option.name);
    return plays_no_part ? text->get() : expanded(option.name, text->get(), node);
  }
  // "spawn = true" is --spawn without a value.
  if (const auto* flag = node.as_boolean(); flag && option.metavar.starts_with('['))
    return flag->get() ? "on" : "off";
  if (!may_be_written_as(option.type(), node.type()))
    fail(node, std::string("'") + option.name + "' is " + type_name(node) + "; expected " +
                   expected_text(option));
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* real = node.as_floating_point()) return base::shortest_text(real->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  std::vector<std::int64_t> list;
  for (const toml::node& item : *node.as_array()) {
    if (!item.is_integer())
      fail(node, std::string("'") + option.name + "' is a list with " + type_name(item) +
                     " in it; expected integers");
    list.push_back(item.as_integer()->get());
  }
  return list_text(list);
}

// A NUL would end names of files and messages early.
void ConfigFile::check_text(const std::string& what, const std::string& text,
                            const toml::node& node) const {
  if (text.find('\0') != std::string::npos)
    fail(node, "'" + what + "' is '" + base::escape_text(text) +
                   "', which has a NUL character; expected text without it");
}

std::string ConfigFile::expanded(const std::string& what, const std::string& text,
                                 const toml::node& node) const {
  std::string fault;
  check_text(what, text, node);
  std::string result = expand_variables(text, fault);
  if (!fault.empty()) fail(node, "'" + what + "' is '" + text + "': " + fault);
  return result;
}

void ConfigFile::follow_includes(const toml::node& node) {
  std::vector<std::string> names;
  if (const auto* one = node.as_string()) names.push_back(expanded("include", one->get(), node));
  if (const auto* several = node.as_array())
    for (const toml::node& item : *several) {
      if (!item.is_string())
        fail(node, "'include' lists " + type_name(item) + "; expected file names");
      names.push_back(expanded("include", item.as_string()->get(), item));
    }
  if (!node.is_string() && !node.is_array())
    fail(node, "'include' is " + type_name(node) + "; expected a file name or a list of them");
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const std::string included = (std::filesystem::path(path_).parent_path() / *name).string();
    ConfigFile(included, values_, open_files_).apply(place(node));
  }
}

}  // namespace

void apply_config_file(const std::string& path, ConfigValues& values) {
  std::vector<std::string> open_files;
  ConfigFile(path, values, open_files).apply();
}

void apply_config_text(const std::string& text, const std::string& name, ConfigValues& values) {
  std::vector<std::string> open_files;
  ConfigFile(name, values, open_files).apply_text(text);
}

namespace {

// Returns the option's variable if it is set; "" if it is not.
std::string variable_of(const std::string& option) {
  const std::string name = environment_name(option);
  const char* value = option.empty() ? nullptr : std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? "" : name;
}

}  // namespace

void apply_environment(ConfigValues& values) {
  for (const OptionSpec& option : train_options()) {
    const std::string now = variable_of(option.name), before = variable_of(option.alias);
    if (!now.empty() && !before.empty())
      throw io::ConfigError(now + " and " + before + " are the same option; set only one");
    const std::string& name = now.empty() ? before : now;
    if (!name.empty())
      values.try_emplace(option.name, ConfigValue{std::getenv(name.c_str()), name});
  }
}

}  // namespace tools
