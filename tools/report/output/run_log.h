// Logs the messages of a run: on the console, in log.txt of its folder and in --log-file, for
// people or, as JSON, for programs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tools {

enum class LogFormat { kText, kJson };

struct LogOptions {
  bool quiet = false;  // true: lines of log_info() are not printed on the console
  LogFormat format = LogFormat::kText;
  bool time = false;  // true: lines on the console begin with the time, as in logs
};
// Applies to the whole process. JSON lines, one per printed line, have the keys ts (UTC), level
// (info, warning), node, rank (null before it is known), step (the last one set; null: none), event
// and message.
void set_log_options(const LogOptions& options);

// The origin of messages from the calling thread.
struct LogContext {
  std::optional<int> rank;  // none: not known yet
  bool named = false;       // its lines begin with "rank N: " in text
  bool silent = false;      // its lines do not go to the console
  std::optional<std::int64_t> step = {};
};
LogContext& log_context() noexcept;

// From now on lines of log_info() and print_notice() are also appended to this file ("": no
// longer). A log that cannot be written is reported once, and has no other effect: the console has
// the lines.
void keep_log(const std::string& path);
// Makes that file again if it has been deleted, with a notice.
void restore_log();
// As keep_log() for --log-file, which has the format of the console. Throws io::CannotCreateError
// if the file cannot be opened.
void open_log_file(const std::string& path);

// Returns what the files above lack, as io::LineFile::loss(); some texts may be "".
std::vector<std::string> take_log_losses();

// Prints one or several lines on stdout, flushed, so that a log of the console follows the run.
// `event` is the topic in JSON.
void log_info(const std::string& text, const char* event = "message");

// Writes "engine: TEXT" to stderr in one write, or JSON, or calls the handler below; and writes it
// to the logs.
void warn(const std::string& line);
// Calls warn() with the text made readable on a terminal.
void print_notice(const std::string& text);
// For programs that handle notices themselves: `handler` receives each notice from now on, on any
// thread; empty: stderr again. Applies to the whole process.
void set_notice_handler(std::function<void(const std::string&)> handler);

}  // namespace tools
