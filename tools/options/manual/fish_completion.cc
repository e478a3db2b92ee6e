// Makes the completion for fish: one line per option.
#include <sstream>
#include <string_view>

#include "io/base/text/text_parts.h"
#include "tools/options/manual/completion.h"

namespace tools {
namespace {

// Only these two characters are special in fish's single quotes.
std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

// Returns a condition that is true if all words of e.g. "bench step" have been given.
std::string condition(const std::string& command) {
  std::string text;
  for (const std::string& word : base::split_text(command, ' '))
    text += (text.empty() ? "" : "; and ") + std::string("__fish_seen_subcommand_from ") + word;
  return fish_quoted(text);
}

std::string arguments_of(const OptionShape& option) {
  const std::string words = base::join_text(option.choices, " ");
  switch (completes(option)) {
    case Completes::kWords:
      return " -f -a " + fish_quoted(words);
    case Completes::kWordsOrFiles:
      return " -F -a " + fish_quoted(words);
    case Completes::kFiles:
      return " -F";
    case Completes::kFolders:
      return " -f -a '(__fish_complete_directories)'";
    case Completes::kNothing:
      break;
  }
  return " -f";
}

std::string option_line(const std::string& command, const OptionShape& option) {
  std::string line = "complete -c engine -n " + condition(command);
  if (option.positional) return line + arguments_of(option) + "\n";
  std::string lines;
  // Two names are one option, but a flag and its opposite are two.
  const bool opposite =
      option.value.empty() && option.names.size() == 2 && option.names.back().starts_with("--no-");
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (opposite && &name == &option.names.front()) {
      lines = line + " -d " + fish_quoted(option.help) + "\n";
      line = "complete -c engine -n " + condition(command);
    }
  }
  if (!option.value.empty()) line += (option.value_is_optional ? "" : " -r") + arguments_of(option);
  return lines + line + " -d " + fish_quoted(option.help) + "\n";
}

}  // namespace

std::string fish_completion(const ProgramShape& program) {
  std::ostringstream text;
  text << "# Completion of `engine` for fish; made by `engine completion fish`.\n"
          "complete -c engine -f\n";
  for (const ProgramCommand& c : program.commands) {
    const std::size_t space = c.name.find(' ');
    if (space == std::string::npos)
      text << "complete -c engine -n __fish_use_subcommand -a " << c.name << " -d "
           << fish_quoted(c.summary) << '\n';
    else
      text << "complete -c engine -n " << condition(c.name.substr(0, space)) << " -a "
           << c.name.substr(space + 1) << " -d " << fish_quoted(c.summary) << '\n';
  }
  text << "complete -c engine -n " << condition("submit") << " -a train\n";
  for (const ProgramCommand& c : program.commands)
    for (const OptionShape& o : c.shape.options) text << option_line(c.name, o);
  return text.str();
}

}  // namespace tools
