// Makes the completion for bash: tables made from the shapes, and one function that walks the
// words.
#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include "io/base/text/text_parts.h"
#include "tools/options/manual/completion.h"
#include "tools/report/output/shell_text.h"

namespace tools {
namespace {

const char* kind_name(const OptionShape& option) {
  if (!option.positional && option.value.empty()) return "flag";
  switch (completes(option)) {
    case Completes::kWords:
      return "words";
    case Completes::kWordsOrFiles:
      return "words+files";
    case Completes::kFiles:
      return "files";
    case Completes::kFolders:
      return "folders";
    case Completes::kNothing:
      break;
  }
  return "value";
}

// The table _engine_options has all names of a command's options, _engine_value the value of each;
// commands that share an option share the line.
std::string tables(const ProgramShape& program) {
  std::ostringstream text;
  std::map<std::string, std::string> patterns;  // by the action
  text << "_engine_options() {\n  case $1 in\n";
  for (const ProgramCommand& c : program.commands) {
    std::vector<std::string> names;
    for (const OptionShape& o : c.shape.options) {
      if (!o.positional) names.insert(names.end(), o.names.begin(), o.names.end());
      const std::string action = std::string("kind=") + kind_name(o) +
                                 " words=" + shell_quoted(base::join_text(o.choices, " "));
      for (const std::string& name : o.names) {
        std::string& pattern = patterns[action];
        pattern += (pattern.empty() ? "" : " | \\\n      ") +
                   shell_quoted(c.name + " " + (o.positional ? "@" : name));
      }
    }
    text << "    " << shell_quoted(c.name)
         << ") words=" << shell_quoted(base::join_text(names, " ")) << " ;;\n";
  }
  text << "    *) words='--help' ;;\n  esac\n}\n_engine_value() {\n  case \"$1 $2\" in\n";
  for (const auto& [action, pattern] : patterns)
    text << "    " << pattern << ") " << action << " ;;\n";
  text << "    *) kind=unknown words='' ;;\n  esac\n}\n";
  return text.str();
}

// readline splits words at = and :, so that "--lr=0.1" and "cuda:1" arrive as three words.
constexpr std::string_view kWalk = R"(
_engine() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' pending='' glued='' i word kind words
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == [=:]* ]]; then
      [[ -n $pending ]] || glued=yes
      continue
    fi
    if [[ -n $glued ]]; then
      glued=''
    elif [[ $word == -?* ]]; then
      pending=''
      [[ $word != --* ]] || word=${word//_/-}
      _engine_value "$command" "$word"
      [[ $kind == flag || $kind == unknown ]] || pending=$word
    elif [[ -n $pending ]]; then
      pending=''
    elif [[ -z $command || $command == @(help|launch|submit|bench) ]]; then
      [[ $command != bench ]] || word="bench $word"
      [[ " $_engine_commands " == *" ${word// /_} "* ]] || return 0  # launch: any other program
      command=$word
    fi
  done
  if [[ $current == [=:] ]]; then
    [[ -n $pending && $current == '=' ]] || return 0
    current=''
  elif [[ -n $glued ]]; then
    return 0
  fi
  if [[ -n $pending && $current != --* ]]; then
    _engine_value "$command" "$pending"
  elif [[ $current == -* ]]; then
    kind=words
    _engine_options "$command"
    [[ $current != *_* ]] || current=${current//_/-}
  elif [[ -z $command || $command == help || $command == launch ]]; then
    kind=words words=$_engine_first_words
    [[ -n $command ]] || words+=' help'
  elif [[ $command == submit ]]; then
    kind=words words=train
  else
    _engine_value "$command" @
  fi
  case $kind in
    words | words+files) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current") ;;
  esac
  case $kind in
    files | words+files)
      compopt -o filenames 2>/dev/null
      mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
    folders)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
  esac
}
complete -F _engine engine
)";

}  // namespace

std::string bash_completion(const ProgramShape& program) {
  std::string all, first;  // "bench_step" represents two words
  for (const ProgramCommand& c : program.commands) {
    std::string word = c.name;
    if (word.find(' ') == std::string::npos) first += (first.empty() ? "" : " ") + word;
    std::ranges::replace(word, ' ', '_');
    all += (all.empty() ? "" : " ") + word;
  }
  return "# Completion of `engine` for bash; made by `engine completion "
         "bash`.\n_engine_commands='" +
         all + " help'\n_engine_first_words='" + first + "'\n" + tables(program) +
         std::string(kWalk);
}

}  // namespace tools
