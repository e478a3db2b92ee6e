// The `engine` program: finds the command, and turns any error into one line and an exit code.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "io/base/nearest.h"
#include "tools/commands/command.h"
#include "tools/options/option_table.h"
#include "tools/report/exit_codes.h"

namespace tools {
namespace {

void print_overview() {
  std::cout << "engine - data-parallel training with gradient or parameter averaging\n\nUsage: "
               "engine COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& c : commands()) {
    std::string name = c.name;
    name.resize(10, ' ');
    std::cout << "  " << name << c.summary << '\n';
  }
  std::cout << "  help      this text, or the help of a command\n\n"
               "Try: engine train --model convnet --dataset glyphs --spawn 2 --save-dir run\n"
               "For the options of a command: engine COMMAND --help\n";
}

const Command& find_command(const std::string& name) {
  for (const Command& c : commands())
    if (c.name == name) return c;
  std::vector<std::string> names{"help"};
  for (const Command& c : commands()) names.emplace_back(c.name);
  throw UsageError("unknown command '" + name + "'" + base::did_you_mean(name, names) +
                   " (engine help lists them)");
}

int run(Arguments arguments) {
  if (arguments.empty()) {
    print_overview();
    return kExitUsage;
  }
  const std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--version" || name == "-V") return version_command(arguments);
  if (name == "help" || name == "--help" || name == "-h") {
    if (arguments.empty()) {
      print_overview();
      return kExitOk;
    }
    return find_command(arguments.front()).run({"--help"});
  }
  return find_command(name).run(arguments);
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {"train", "train a model on one or several ranks", train_command},
      {"launch", "start the ranks of a job on one or several nodes", launch_command},
      {"verify", "compare checkpoints tensor by tensor", verify_command},
      {"eval", "evaluate a checkpoint: loss and accuracy", eval_command},
      {"bench", "measure training steps, scaling or collectives", bench_command},
      {"inspect", "show the contents of a checkpoint, or analyze a failed run", inspect_command},
      {"export", "write the model of a checkpoint as .safetensors or .npz", export_command},
      {"import", "make a checkpoint from .safetensors or .npz weights", import_command},
      {"sample", "generate text with a trained text model", sample_command},
      {"doctor", "check the hosts, links, clocks and folders of a group", doctor_command},
      {"env", "show the detected rank, world size and rendezvous address", env_command},
      {"version", "show version and build information", version_command},
  };
  return table;
}

}  // namespace tools

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(true);
  try {
    return tools::run(tools::Arguments(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::cout.flush();
    std::fprintf(stderr, "engine: error: %s\n", error.what());
    return tools::exit_code_of(error);
  }
}
