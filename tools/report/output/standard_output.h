// Prints to standard output, and whether what the program prints arrives.
#pragma once

#include <string_view>

namespace tools {

// Gives closed standard streams a place, so that no file that is opened later takes theirs. Throws
// io::Error where standard output is closed. To be called before anything is opened.
void open_standard_streams();

// Flushes standard output and remembers what was wrong, for check_standard_output(): the line of a
// training that goes on is not worth its end.
void flush_standard_output() noexcept;

bool standard_output_failed() noexcept;  // something that was printed has not arrived

// Prints lines that may contain other people's names, as CSV does: byte for byte into a file or a
// pipe, with escapes in place of control characters (visible_lines()) on a terminal.
void print_output(std::string_view lines);

// Flushes standard output, and waits for at most a second for what threads of ConsoleThreads have
// to write. Throws io::Error where that or anything printed before has failed.
void check_standard_output();

}  // namespace tools
