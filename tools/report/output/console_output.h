// Writes lines to stdout and stderr, directly or on threads that wait for slow readers.
#pragma once

#include <atomic>
#include <string_view>

namespace tools {

enum class ConsoleStream { kOut, kError };

// Writes all of `text`, or passes it to the stream's thread while a ConsoleThreads exists. A
// failure is stored for check_standard_output(). May be called on any thread.
void write_console(ConsoleStream stream, std::string_view text) noexcept;

// Flushes stdio's buffer of standard output and stores errors for check_standard_output(): a lost
// line is no reason to end a training.
void flush_standard_output() noexcept;

// Returns true if all text passed to the stream's thread is written, or if there is no thread.
bool console_is_idle(ConsoleStream stream) noexcept;

// While it exists, a slow reader of stdout or stderr delays neither a step nor a save:
// write_console() returns at once. The threads store at most 1 MiB of text per stream. They drop
// text beyond that, and write the number of missing lines when the reader continues.
//
// The last destructor waits until everything is written, but no longer than kConsolePatienceSeconds
// after the last byte was accepted, or a quarter of a second if `stop_signal` is not 0. It then
// counts the rest as a failed write, which check_standard_output() reports.
//
// Several may exist, e.g. one per rank that is a thread; they share the threads of the first.
// REQUIRES: the process does not fork meanwhile; all have the same stop_signal.
class ConsoleThreads {
 public:
  explicit ConsoleThreads(const std::atomic<int>& stop_signal);
  ~ConsoleThreads();
  ConsoleThreads(const ConsoleThreads&) = delete;
  ConsoleThreads& operator=(const ConsoleThreads&) = delete;

 private:
  const std::atomic<int>& stop_signal_;
};

inline constexpr double kConsolePatienceSeconds = 10;

// Waits until the threads have written everything, for at most `seconds`.
void wait_for_console(double seconds) noexcept;

// Returns the errno of the first write to stdout that failed; 0: none did. ETIMEDOUT: its reader
// did not read.
int console_fault() noexcept;

}  // namespace tools
