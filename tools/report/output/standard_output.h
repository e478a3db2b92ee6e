// Prints to standard output, and checks that the text arrives.
#pragma once

#include <string_view>

namespace tools {

// Opens /dev/null for closed standard streams, so that no file opened later gets their descriptors.
// Throws io::Error if standard output is closed. Call it before anything is opened.
void open_standard_streams();

bool standard_output_failed() noexcept;  // some printed text has not arrived

// Prints lines that may contain foreign names, e.g. CSV: byte for byte to a file or a pipe, with
// control characters escaped (visible_lines()) on a terminal.
void print_output(std::string_view lines);

// Flushes standard output, and waits at most one second for pending text of ConsoleThreads. Throws
// io::Error if that or any earlier print has failed.
void check_standard_output();

}  // namespace tools
