// What a run says: lines on the console, in log.txt of its folder and in --log-file, for people or,
// as JSON, for programs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tools {

enum class LogFormat { kText, kJson };

struct LogOptions {
  bool quiet = false;  // lines of say() do not go to the console
  LogFormat format = LogFormat::kText;
  bool time = false;  // lines on the console begin with the time, as in logs
};
// Of the process. JSON lines, one for each line said, have the keys ts (UTC), level (info,
// warning), node, rank (null before it is known), step (the last one told; null: none), event and
// message.
void set_log_options(const LogOptions& options);

// Who speaks on the calling thread from now on.
struct LogContext {
  std::optional<int> rank;  // none: not known yet
  bool named = false;       // its lines begin with "rank N: " in text
  bool silent = false;      // its lines do not go to the console
  std::optional<std::int64_t> step = {};
};
LogContext& log_context() noexcept;

// From now on the lines of say() and print_notice() are also appended to this file ("": no longer).
// That a log cannot be written is said, once, and ends nothing: the console has the lines.
void keep_log(const std::string& path);
// The same for --log-file, which has the format of the console. Throws io::CannotCreateError where
// the file cannot be opened.
void open_log_file(const std::string& path);

// One line or several on stdout, flushed, so that a log of the console follows the run. `event`
// says in JSON what it is about.
void say(const std::string& text, const char* event = "message");

// "engine: TEXT" on stderr, one write, or JSON, or to the handler below; and in the logs.
void warn(const std::string& line);
// For programs that have a place of their own for notices: `handler` is told each from now on, from
// any thread; empty: stderr again. Of the process.
void set_notice_handler(std::function<void(const std::string&)> handler);

}  // namespace tools
