// The data of manual pages and completion: the shapes of all commands, and facts about the whole
// program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/options/input/command_shape.h"

namespace tools {

struct ProgramCommand {
  std::string name;     // "train"; "bench step" if the first argument has its own options
  std::string summary;  // one line, no period
  CommandShape shape;
};

struct ProgramShape {
  std::string version;
  std::vector<ProgramCommand> commands;  // "bench step" follows "bench"
  std::vector<std::pair<int, std::string>> exit_codes;
};

// The values that can be completed after an option, or for a positional argument.
enum class Completes { kNothing, kWords, kWordsOrFiles, kFiles, kFolders };
Completes completes(const OptionShape& option);

}  // namespace tools
