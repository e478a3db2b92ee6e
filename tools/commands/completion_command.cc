// Implements `engine completion`: prints a script for the user's shell.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/commands/command.h"
#include "tools/commands/program_shape_of.h"
#include "tools/options/manual/completion.h"
#include "tools/report/output/exit_codes.h"

namespace tools {

int completion_command(const Arguments& arguments) {
  CLI::App app("Prints a script that lets a shell complete commands, options and their values.",
               "engine completion");
  std::string shell;
  app.add_option("SHELL", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("bash|zsh|fish");
  app.footer(
      "An installed engine needs none of this. Otherwise:\n"
      "  bash: source <(engine completion bash)\n"
      "  zsh: engine completion zsh >~/.zfunc/_engine, with ~/.zfunc in fpath\n"
      "  fish: engine completion fish >~/.config/fish/completions/engine.fish");
  if (!parse(app, arguments)) return kExitOk;
  const ProgramShape program = shape_of_program();
  const std::string text = shell == "bash"  ? bash_completion(program)
                           : shell == "zsh" ? zsh_completion(program)
                                            : fish_completion(program);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace tools
