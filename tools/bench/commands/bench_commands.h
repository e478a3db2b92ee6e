// Declares the kinds of `engine bench`, which bench_command() selects.
#pragma once

#include "tools/options/input/command_line.h"

namespace tools {

int bench_comm_command(const Arguments& arguments);
int bench_link_command(const Arguments& arguments);
int bench_scaling_command(const Arguments& arguments);
int bench_demos_command(const Arguments& arguments);
int bench_kernels_command(const Arguments& arguments);
int bench_save_command(const Arguments& arguments);
int bench_io_command(const Arguments& arguments);
int bench_verify_command(const Arguments& arguments);

}  // namespace tools
