// Asks each command for its shape.
#include "tools/commands/program_shape_of.h"

#include "backends/group.h"
#include "models/model_catalog.h"
#include "tools/commands/command.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

// Adds names that only this build knows; the table describes them in general.
void add_names(CommandShape& shape) {
  for (OptionShape& option : shape.options) {
    if (option.names.front() == "--model") {
      option.choices = models::model_names();
      option.value = "NAME|FILE.toml|FILE.onnx|DIR";
    }
    if (option.names.front() == "--backend" && option.choices.empty()) {
      option.choices = {"auto"};
      for (const backends::BackendInfo& b : backends::list_backends())
        option.choices.push_back(b.name);
    }
  }
}

ProgramCommand command_of(const Command& command, const Command::Kind* kind) {
  ProgramCommand result{command.name, command.summary, {}};
  Arguments arguments;
  if (kind != nullptr) {
    arguments.emplace_back(kind->name);
    result.name += std::string(" ") + kind->name;
    result.summary = kind->summary;
  }
  result.shape = shape_of(command.run, arguments);
  add_names(result.shape);
  return result;
}

}  // namespace

ProgramShape shape_of_program() {
  ProgramShape program{ENGINE_VERSION, {}, {}};
  for (const Command& command : commands()) {
    if (command.hidden) continue;
    program.commands.push_back(command_of(command, nullptr));
    for (const Command::Kind& kind : command.kinds)
      program.commands.push_back(command_of(command, &kind));
  }
  for (const ExitCode& c : exit_codes()) program.exit_codes.emplace_back(c.code, c.meaning);
  return program;
}

}  // namespace tools
