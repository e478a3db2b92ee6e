// Makes scripts that complete command lines in shells: commands, options, and values that are
// words, files or folders. The scripts are self-contained and do not start the program.
#pragma once

#include <string>

#include "tools/options/manual/program_shape.h"

namespace tools {

std::string bash_completion(const ProgramShape& program);  // needs no package bash-completion
std::string zsh_completion(const ProgramShape& program);
std::string fish_completion(const ProgramShape& program);

}  // namespace tools
