// Formats options and examples.
#include "tools/options/input/help_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "tools/options/table/option_rules.h"
#include "tools/options/table/option_table.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

constexpr std::size_t kMaxShownAtOnce = 40;  // options per command

// Options of the table that are always shown; a command's own options always are.
constexpr std::string_view kCommon[] = {
    "model",       "dataset",      "data-dir",  "epochs",   "batch-size", "optimizer", "lr",
    "lr-schedule", "weight-decay", "augment",   "seed",     "spawn",      "backend",   "sync",
    "sync-every",  "elastic",      "device",    "amp",      "threads",    "save-dir",  "save-every",
    "resume",      "eval-every",   "log-every", "keep-best"};

struct Heading {
  std::string_view group, text;
};
constexpr Heading kHeadings[] = {{"config", "Configuration file"},
                                 {"before", "Before training"},
                                 {"run", "Model and data"},
                                 {"compute", "Devices, threads and precision"},
                                 {"group", "Ranks and rendezvous"},
                                 {"sync", "Averaging"},
                                 {"batch", "Batches and their order"},
                                 {"optimizer", "Optimizer and learning rate"},
                                 {"state", "Saving and resuming"},
                                 {"report", "Evaluation and reports"},
                                 {"preempt", "Preemption"},
                                 {"job", "Nodes and workers"},
                                 {"rendezvous", "Rendezvous of the nodes"},
                                 {"output", "Output of the workers"}};

// Returns e.g. "lr"; "" for an argument without a name.
std::string name_of(const OptionShape& option) {
  const auto longer = std::ranges::find_if(
      option.names, [](const std::string& name) { return name.starts_with("--"); });
  return longer == option.names.end() ? "" : longer->substr(2);
}

const OptionSpec* row_of(const OptionShape& option) {
  const OptionSpec* row = find_option(name_of(option));
  return row != nullptr && option.group == row->group ? row : nullptr;
}

std::string value_of(const OptionShape& option) {
  const OptionSpec* row = row_of(option);
  return row != nullptr ? row->metavar : option.value;
}

// A long list of choices is part of the description instead.
bool has_long_list(const OptionShape& option) {
  const OptionSpec* row = row_of(option);
  const bool is_choice =
      row != nullptr ? row->type() == OptionSpec::Type::kChoice : !option.choices.empty();
  return is_choice && value_of(option).size() > 24;
}

// Returns e.g. "-n, --lines N", "--[no-]shuffle", "--elastic [MIN:MAX]", "FILE...".
std::string synopsis(const OptionShape& option) {
  if (option.positional) return option.names.front();
  const OptionSpec* row = row_of(option);
  std::string text;
  for (const std::string& name : option.names)
    if (!name.starts_with("--")) text += name + ", ";
  if (row != nullptr && row->type() == OptionSpec::Type::kFlag) return text + "--[no-]" + row->name;
  text += "--" + name_of(option);
  const std::string value = has_long_list(option) ? "NAME" : value_of(option);
  return value.empty() ? text : text + " " + value;
}

std::string description(const OptionShape& option) {
  const OptionSpec* row = row_of(option);
  std::string text = row != nullptr ? row->help : option.help;
  if (has_long_list(option))
    text += "; one of " + base::join_text(base::split_text(value_of(option), '|'));
  if (row == nullptr) {
    if (!option.default_value.empty()) text += " (default: " + option.default_value + ")";
    return text;
  }
  const bool is_flag = row->type() == OptionSpec::Type::kFlag;
  // A command may have another default than train.
  const std::string_view unset =
      is_flag || option.default_value.empty() ? row->default_value : option.default_value;
  const bool has_default = text.find("(default") != std::string::npos;
  if (has_default || unset.empty()) return text;
  if (is_flag && unset == "false") return text;
  return text + " (default: " + (is_flag ? "on" : std::string(unset)) + ")";
}

// Wraps text to lines of at most `width`; the first begins after `head`, the others at `indent`.
std::string wrapped(std::string head, const std::string& text, std::size_t indent,
                    std::size_t width) {
  std::string out, line = std::move(head);
  bool is_empty = true;
  if (!line.empty() && line.size() + 2 > indent) {
    out += line + "\n";
    line.assign(indent, ' ');
  } else {
    line.resize(indent, ' ');
  }
  for (const std::string& word : base::split_text(text, ' ')) {
    if (!is_empty && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.assign(indent, ' ');
      is_empty = true;
    }
    line += (is_empty ? "" : " ") + word;
    is_empty = false;
  }
  return out + line + "\n";
}

// Returns the column of descriptions: beside the options, or below them if there is too little
// room.
std::size_t column(std::size_t width) {
  constexpr std::size_t kBeside = 28, kBelow = 6, kRoom = 32;
  return width < kBeside + kRoom ? kBelow : kBeside;
}

std::string line_of(const OptionShape& option, std::size_t width) {
  return wrapped("  " + synopsis(option), description(option), column(width), width);
}

bool is_own(const OptionShape& option) { return row_of(option) == nullptr; }

// Returns the command's own groups, then those that it shares with other commands.
std::vector<std::string> groups_of(const CommandShape& command) {
  std::vector<std::string> groups;
  for (const bool own : {true, false})
    for (const OptionShape& option : command.options)
      if (is_own(option) == own && std::ranges::find(groups, option.group) == groups.end())
        groups.push_back(option.group);
  return groups;
}

// Formats the options of each group below its heading.
std::string grouped(const CommandShape& command, const std::vector<std::string>& groups,
                    std::size_t width) {
  std::string text;
  for (const std::string& group : groups) {
    text += "\n" + heading_of(group) + "\n";
    for (const OptionShape& option : command.options)
      if (option.group == group) text += line_of(option, width);
  }
  return text;
}

std::string usage(const CommandShape& command, std::size_t width) {
  std::string line = "Usage: " + command.name;
  if (!command.options.empty()) line += " [OPTIONS]";
  for (const OptionShape& option : command.options)
    if (option.positional) line += " " + option.names.front();
  return wrapped("", line, 0, width);
}

std::string example_line(const std::string& example) {
  std::string start = "engine train";
  if (example.find("--model ") == std::string::npos) start += " --model mlp";
  if (example.find("--dataset ") == std::string::npos) start += " --dataset mnist";
  return start + " " + example;
}

std::string details(const OptionShape& option, std::size_t width) {
  std::string text = wrapped(synopsis(option), description(option), 4, width);
  const OptionSpec* row = row_of(option);
  if (row == nullptr) return text;
  const std::string name = row->name;
  const std::size_t indent = std::min<std::size_t>(column(width), 17);
  if (row->type() == OptionSpec::Type::kChoice)
    text += wrapped("    choices:", base::join_text(row->field.choices), indent, width);
  text += wrapped("    elsewhere:",
                  environment_name(name) + " in the environment, " + name + " in table [" +
                      row->group + "] of a configuration file",
                  indent, width);
  if (row->agreement == OptionSpec::Agreement::kEqual)
    text += wrapped("    ranks:", "must have the same value", indent, width);
  // Without line breaks, for copying.
  text += "    example:     " + example_line(row->example) + "\n";
  if (const std::vector<std::string> more = options_requiring(name); !more.empty())
    text += wrapped("    with it:", "--" + base::join_text(more, ", --"), indent, width);
  return text;
}

std::string common(const CommandShape& command, std::size_t width) {
  std::vector<std::string> own = groups_of(command);
  std::erase_if(own, [&](const std::string& group) {
    return std::ranges::none_of(command.options, [&](const OptionShape& option) {
      return option.group == group && is_own(option);
    });
  });
  std::string text = grouped(command, own, width) + "\nCommon options\n";
  for (const std::string_view name : kCommon)
    for (const OptionShape& option : command.options)
      if (name_of(option) == name && !is_own(option)) text += line_of(option, width);
  const std::string help = "  " + command.name + " --help ";
  const std::size_t indent = column(width) + 10;
  text += "\nMore\n";
  text += wrapped(help + "all", "all " + std::to_string(command.options.size()) + " options",
                  indent, width);
  text += wrapped(help + "GROUP", "one of " + base::join_text(groups_of(command)), indent, width);
  return text + wrapped(help + "OPTION", "one option, with an example", indent, width);
}

}  // namespace

std::string heading_of(const std::string& group) {
  const auto found = std::ranges::find(kHeadings, group, &Heading::group);
  return found == std::end(kHeadings) ? group : std::string(found->text);
}

std::string help_text(const CommandShape& command, const std::string& topic, int columns) {
  const auto width = static_cast<std::size_t>(columns);
  const std::vector<std::string> groups = groups_of(command);
  const std::string wanted = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
  std::string name = wanted;
  std::ranges::replace(name, '_', '-');
  const OptionSpec* row = find_option(name);
  const std::string current = row == nullptr ? name : row->name;  // replaces an earlier name
  if (!wanted.empty() && wanted != "all") {
    if (std::ranges::find(groups, wanted) != groups.end())
      return grouped(command, {wanted}, width).substr(1);
    std::vector<std::string> known{"all"};
    for (const OptionShape& option : command.options) {
      for (const std::string& spelling : option.names) {
        if (option.positional) break;
        if (spelling == "--" + current || spelling == "-" + name) return details(option, width);
        if (spelling.starts_with("--")) known.push_back(spelling.substr(2));
      }
    }
    known.insert(known.end(), groups.begin(), groups.end());
    throw UsageError("no help for '" + topic + "'" + base::did_you_mean(wanted, known) + " (" +
                     command.name + " --help lists options and groups)");
  }
  std::string text = wrapped("", command.description, 0, width) + "\n" + usage(command, width);
  const bool at_once = command.options.size() <= kMaxShownAtOnce;
  text += at_once || wanted == "all" ? grouped(command, groups, width) : common(command, width);
  if (command.footer.empty()) return text;
  text += "\n";
  for (const std::string& line : base::split_text(command.footer, '\n'))
    text += line.starts_with(' ') ? line + "\n" : wrapped("", line, 0, width);
  return text;
}

int help_width() {
  constexpr int kUsual = 80, kLeast = 40, kMost = 110;
  winsize size{};
  int width = kUsual;
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr && std::atoi(columns) > 0)
    width = std::atoi(columns);
  else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    width = size.ws_col;
  return std::clamp(width, kLeast, kMost);
}

}  // namespace tools
