// The `engine` program: finds the command, and turns any error into one line and an exit code.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "backends/store/private_files.h"
#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "tools/commands/command.h"
#include "tools/launch/nodes/launch_options.h"
#include "tools/options/input/command_line.h"
#include "tools/options/input/known_variables.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/lost_output.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"
#include "tools/report/output/uncaught_errors.h"

namespace tools {
namespace {

void print_overview() {
  std::cout << "engine - data-parallel training with gradient or parameter averaging\n\nUsage: "
               "engine COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& c : commands()) {
    if (c.hidden) continue;
    std::string name = c.name;
    name.resize(12, ' ');
    std::cout << "  " << name << c.summary << '\n';
  }
  std::cout << "  help        this text, or the help of a command\n\n"
               "Try: engine train --model convnet --dataset glyphs --spawn 2 --save-dir run\n"
               "For the options of a command: engine COMMAND --help\n";
}

const Command& find_command(const std::string& name) {
  for (const Command& c : commands())
    if (c.name == name) return c;
  std::vector<std::string> names{"help"};
  for (const Command& c : commands())
    if (!c.hidden) names.emplace_back(c.name);
  throw UsageError("unknown command '" + name + "'" + base::did_you_mean(name, names) +
                   " (engine help lists them)");
}

// A stack overflow ends the process without a message; threads' stacks have the same size.
void check_stack_limit() {
  constexpr rlim_t kMinKib = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur / 1024 >= kMinKib) return;
  throw io::ConfigError("the limit of a stack is " + std::to_string(limit.rlim_cur / 1024) +
                        " KiB (ulimit -s), expected at least " + std::to_string(kMinKib));
}

void warn_of_unknown_variables() {
  if (is_one_of_many()) return;
  for (const std::string& line : unknown_variables(environment_names(), launch_option_names()))
    print_notice("warning: " + line);
}

// As in a script whose $DIR is not set: nothing would be saved.
void warn_of_empty_options() {
  if (is_one_of_many()) return;
  for (const std::string& name : empty_variables())
    print_notice("warning: " + name + " is set, but empty, and counts as unset");
}

// Rank 0 and the others would each look for another secret, or find different ones.
void warn_of_empty_secrets() {
  if (backends::secret_comes_from_environment()) return;
  for (const char* name : {"ENGINE_SECRET", "ENGINE_SECRET_FILE"})
    if (std::getenv(name) != nullptr)
      print_notice(std::string("warning: ") + name +
                   " is set, but empty, and counts as unset: expected the job's secret");
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
    if (arguments.empty() || arguments.front() == "help") {
      print_overview();
      return kExitOk;
    }
    arguments.insert(arguments.begin() + 1, "--help");
    return find_command(arguments.front()).run({arguments.begin() + 1, arguments.end()});
  }
  return find_command(name).run(arguments);
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(true);
  prctl(PR_SET_NAME, "engine");   // `launch` starts /proc/self/exe, which is "exe" for ps
  std::signal(SIGXFSZ, SIG_IGN);  // if a file may not grow (ulimit -f), a write fails
  tools::report_uncaught_errors();
  try {
    tools::open_standard_streams();
    tools::check_stack_limit();
    tools::warn_of_unknown_variables();
    tools::warn_of_empty_options();
    tools::warn_of_empty_secrets();
    const int code = tools::run(tools::Arguments(argv + 1, argv + argc));
    if (code == tools::kExitOk || code == tools::kExitDifferent) tools::check_standard_output();
    if (code == tools::kExitOk) tools::check_lost_outputs();
    return code;
  } catch (const std::exception& error) {
    std::cout.flush();
    std::fprintf(stderr, "engine: error: %s\n", tools::text_of(error).c_str());
    return tools::exit_code_of(error);
  }
}
