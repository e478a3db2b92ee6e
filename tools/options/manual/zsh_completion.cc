// Makes the completion for zsh: one function per command, with _arguments.
#include <algorithm>
#include <sstream>
#include <string_view>

#include "io/base/text/text_parts.h"
#include "tools/options/manual/completion.h"
#include "tools/report/output/shell_text.h"

namespace tools {
namespace {

// Escapes text within a specification of _arguments.
std::string zsh_plain(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string action_of(const OptionShape& option) {
  const std::string words = zsh_plain(base::join_text(option.choices, " "));
  switch (completes(option)) {
    case Completes::kWords:
      return "(" + words + ")";
    case Completes::kWordsOrFiles:
      return "{_alternative 'w\\:word\\:(" + words + ")' 'f\\:file\\:_files'}";
    case Completes::kFiles:
      return "_files";
    case Completes::kFolders:
      return "_files -/";
    case Completes::kNothing:
      break;
  }
  return " ";
}

std::string function_name(std::string command) {
  std::ranges::replace(command, ' ', '_');
  return "_engine_" + command;
}

// Returns "'--lr=[learning rate]:F: '", one line per name.
std::string specifications(const OptionShape& option) {
  std::string text;
  if (option.positional)
    return "    " +
           shell_quoted((option.takes_many ? "*:" : ":") + zsh_plain(option.names.front()) + ":" +
                        action_of(option)) +
           " \\\n";
  for (const std::string& name : option.names) {
    std::string spec = option.takes_many ? "*" : "";
    spec += name;
    if (!option.value.empty()) spec += name.starts_with("--") ? "=" : "+";
    spec += "[" + zsh_plain(option.help) + "]";
    if (!option.value.empty())
      spec += (option.value_is_optional ? "::" : ":") + zsh_plain(option.value) + ":" +
              action_of(option);
    text += "    " + shell_quoted(spec) + " \\\n";
  }
  return text;
}

std::string described_words(const ProgramShape& program, const std::string& within) {
  std::string text;
  for (const ProgramCommand& c : program.commands) {
    const bool inner = c.name.find(' ') != std::string::npos;
    if (within.empty() ? inner : !c.name.starts_with(within + " ")) continue;
    const std::string word = inner ? c.name.substr(within.size() + 1) : c.name;
    text += "    " + shell_quoted(word + ":" + zsh_plain(c.summary)) + "\n";
  }
  return text;
}

}  // namespace

std::string zsh_completion(const ProgramShape& program) {
  std::ostringstream text;
  text << "#compdef engine\n# Completion of `engine` for zsh; made by `engine completion zsh`.\n";
  std::vector<std::string> parents;
  for (const ProgramCommand& c : program.commands)
    if (const std::size_t space = c.name.find(' '); space != std::string::npos)
      if (const std::string parent = c.name.substr(0, space);
          std::ranges::find(parents, parent) == parents.end())
        parents.push_back(parent);
  for (const ProgramCommand& c : program.commands) {
    const bool parent = std::ranges::find(parents, c.name) != parents.end();
    text << function_name(c.name) << "() {\n  _arguments -s \\\n";
    for (const OptionShape& o : c.shape.options)
      if (!parent || !o.positional) text << specifications(o);
    if (parent) text << "    '*::what:" << function_name(c.name) << "_words' \\\n";
    if (c.name == "launch" || c.name == "submit") text << "    '*::command:_engine_words' \\\n";
    text << "    && return\n}\n";
  }
  const auto words = [&](const std::string& within) {
    const std::string function = within.empty() ? std::string("_engine") : function_name(within);
    text << function << "_words() {\n  local -a names=(\n"
         << described_words(program, within)
         << "  )\n  if (( CURRENT == 1 )); then\n    _describe -t commands 'command' names\n"
         << "  elif (( $+functions[" << function << "_$words[1]] )); then\n    " << function
         << "_$words[1]\n  else\n    _default\n  fi\n}\n";
  };
  for (const std::string& parent : parents) words(parent);
  words("");
  text << "_engine() {\n  _arguments '(- *)--help[help]' '(- *)--version[version]' "
          "'*::command:_engine_words'\n}\n_engine \"$@\"\n";
  return text.str();
}

}  // namespace tools
