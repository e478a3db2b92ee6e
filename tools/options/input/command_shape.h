// What a command declares to parse(), as data: help, manual pages and the completion of shells are
// made of it, so they cannot say anything else than the program.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace tools {

struct OptionShape {
  std::vector<std::string> names;    // "-c", "--config"; a flag's "--x", "--no-x"; "FILES"
  std::string value;                 // what follows the name: "FILE.toml", "N"; "" for a flag
  std::vector<std::string> choices;  // of the value, where some of them are fixed words
  std::string help, group, default_value;
  bool positional = false, required = false;
  bool value_is_optional = false;  // "--keep-best" or "--keep-best loss"
  bool takes_many = false;         // several values, or the option several times
};

struct CommandShape {
  std::string name;  // "engine train"
  std::string description, footer;
  std::vector<OptionShape> options;  // as help lists them; hidden ones are left out
};

CommandShape shape_of(const CLI::App& app);

// What the command `run` would parse its arguments with: runs it with `arguments` up to its
// parse(), which returns false as it does after --help.
CommandShape shape_of(const std::function<int(const std::vector<std::string>&)>& run,
                      const std::vector<std::string>& arguments = {});

// For parse(): whether shape_of() is what asks. If so, it has now been told.
bool told_shape(const CLI::App& app);

}  // namespace tools
