// Declares the commands of the program.
#pragma once

#include <vector>

#include "tools/options/input/command_line.h"

namespace tools {

int train_command(const Arguments& arguments);
int launch_command(const Arguments& arguments);
// Defined in tools/commands/submit/submit_command.cc.
int submit_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int predict_command(const Arguments& arguments);
int verify_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int top_command(const Arguments& arguments);
int inspect_command(const Arguments& arguments);
// Defined in tools/bench/commands/bench_command.cc.
int bench_command(const Arguments& arguments);
int export_command(const Arguments& arguments);
int import_command(const Arguments& arguments);
// Defined in tools/commands/tokenize/tokenize_command.cc.
int tokenize_command(const Arguments& arguments);
int sample_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int env_command(const Arguments& arguments);
int relay_command(const Arguments& arguments);
int version_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);
int manual_command(const Arguments& arguments);

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&);
  struct Kind {
    const char* name;
    const char* summary;
  };
  std::vector<Kind> kinds = {};  // first arguments that have their own options
  bool hidden = false;           // not for users
};
// Returns the commands in the order of the manual page.
// Defined in tools/command_table.cc, which knows all parts.
const std::vector<Command>& commands();

}  // namespace tools
