// What manual pages and completion are made of: the shapes of all commands, and facts of the whole
// program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/options/input/command_shape.h"

namespace tools {

struct ProgramCommand {
  std::string name;     // "train"; "bench step" where the first argument has options of its own
  std::string summary;  // one line, no full stop
  CommandShape shape;
};

struct ProgramShape {
  std::string version;
  std::vector<ProgramCommand> commands;  // "bench step" follows "bench"
  std::vector<std::pair<int, std::string>> exit_codes;
};

// What may be completed after an option, or where a positional argument stands.
enum class Completes { kNothing, kWords, kWordsOrFiles, kFiles, kFolders };
Completes completes(const OptionShape& option);

}  // namespace tools
