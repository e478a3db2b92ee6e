// A command's options and arguments as data: help, manual pages and shell completion are made from
// it, so they always agree with the program.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tools {

struct OptionShape {
  std::vector<std::string> names;    // "-c", "--config"; a flag's "--x", "--no-x"; "FILES"
  std::string value;                 // placeholder after the name: "FILE.toml", "N"; "" for a flag
  std::vector<std::string> choices;  // fixed words among the values
  std::string help, group, default_value;
  bool positional = false, required = false;
  bool value_is_optional = false;  // e.g. "--keep-best" or "--keep-best loss"
  bool takes_many = false;         // several values, or the option several times
};

struct CommandShape {
  std::string name;  // e.g. "engine train"
  std::string description, footer;
  std::vector<OptionShape> options;  // in the order of help; hidden ones are omitted
};

CommandShape shape_of(const CLI::App& app);

// Returns the shape with which the command `run` would parse its arguments: runs it with
// `arguments` up to its parse(), which then returns false as after --help.
CommandShape shape_of(const std::function<int(const std::vector<std::string>&)>& run,
                      const std::vector<std::string>& arguments = {});

// For parse(): returns true if shape_of() is the caller, and passes the shape to it.
bool capture_shape(const CLI::App& app);

}  // namespace tools
