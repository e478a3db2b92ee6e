// The process has one set of files, as it has one console.
#include "tools/report/output/run_log.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "backends/identity/host_identity.h"
#include "io/base/files/io_error.h"
#include "io/base/formats/json_writer.h"
#include "io/base/text/escape_text.h"
#include "io/base/time/utc_time.h"
#include "io/metrics/line_file.h"
#include "tools/report/output/console_output.h"

namespace tools {
namespace {

std::mutex log_mutex;  // guards the following
LogOptions log_options;
std::optional<io::LineFile> run_log_file;     // log.txt
std::optional<io::LineFile> chosen_log_file;  // --log-file
std::vector<std::string> losses_of_closed;    // what replaced logs lack

LogOptions options_now() {
  const std::lock_guard guard(log_mutex);
  return log_options;
}

std::string json_line(const std::string& time, const char* level, const char* event,
                      const std::string& message) {
  const LogContext& who = log_context();
  base::JsonWriter json;
  json.begin_object().member("ts", time).member("level", level);
  json.member("node", backends::host_name());
  json.member("rank", who.rank).member("step", who.step);
  json.member("event", event).member("message", message).end_object();
  return json.text();
}

// Returns e.g. "rank 3: " if several ranks print.
std::string prefix() {
  const LogContext& who = log_context();
  return who.named ? "rank " + std::to_string(who.rank.value_or(0)) + ": " : "";
}

// Returns e.g. "2026-01-02T03:04:05.678Z ", if lines on the console begin with the time.
std::string console_time(const LogOptions& options) {
  return options.time ? base::utc_text(base::unix_us()) + " " : "";
}

// Returns one JSON line per line of a text.
std::string json_lines(const char* level, const char* event, const std::string& text) {
  const std::string time = base::utc_text(base::unix_us());
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);)
    all += json_line(time, level, event, line) + "\n";
  return all;
}

std::string timed_lines(const std::string& text) {
  const std::string time = base::utc_text(base::unix_us()) + " ";
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) all += time + prefix() + line + "\n";
  return all;
}

// A failure is reported, but if one log fails, the other one and the console still have the lines.
void log_lines(const std::string& text, const std::string& json) {
  const std::string timed = timed_lines(text);
  std::string faults[2];
  {
    const std::lock_guard guard(log_mutex);
    if (run_log_file) faults[0] = run_log_file->write(timed);
    if (chosen_log_file)
      faults[1] = chosen_log_file->write(log_options.format == LogFormat::kJson ? json : timed);
  }
  for (const std::string& fault : faults)
    if (!fault.empty()) warn(fault);
}

using NoticeHandler = std::function<void(const std::string&)>;
std::mutex notice_mutex;
std::shared_ptr<const NoticeHandler> own_handler;  // guarded by the mutex; null: stderr

// The handler is not called under the lock, because it may set another one.
std::shared_ptr<const NoticeHandler> notice_handler() {
  const std::lock_guard guard(notice_mutex);
  return own_handler;
}

}  // namespace

void set_log_options(const LogOptions& options) {
  const std::lock_guard guard(log_mutex);
  log_options = options;
}

LogContext& log_context() noexcept {
  static thread_local LogContext own;
  return own;
}

void keep_log(const std::string& path) {
  std::string fault;
  {
    const std::lock_guard guard(log_mutex);
    if (run_log_file) losses_of_closed.push_back(run_log_file->loss());
    run_log_file.reset();
    try {
      if (!path.empty()) run_log_file.emplace("log", path, io::NamedBy::kRun);
    } catch (const io::CannotCreateError& error) {
      fault = error.what();
      losses_of_closed.push_back(fault);
    }
  }
  if (!fault.empty()) warn(fault + "; training continues without it");
}

void restore_log() {
  std::string made;
  {
    const std::lock_guard guard(log_mutex);
    if (run_log_file) made = run_log_file->restore();
  }
  if (!made.empty()) warn(made);
}

std::vector<std::string> take_log_losses() {
  const std::lock_guard guard(log_mutex);
  std::vector<std::string> losses = std::exchange(losses_of_closed, {});
  for (const auto* file : {&run_log_file, &chosen_log_file})
    if (*file) losses.push_back((*file)->loss());
  return losses;
}

void open_log_file(const std::string& path) {
  const std::lock_guard guard(log_mutex);
  chosen_log_file.emplace("log-file", path);
}

void log_info(const std::string& lines, const char* event) {
  const std::string text = base::visible_lines(lines);
  const LogOptions options = options_now();
  const std::string json = json_lines("info", event, text);
  if (!options.quiet && !log_context().silent) {
    std::string shown = json;
    if (options.format == LogFormat::kText) {
      const std::string time = console_time(options);
      shown.clear();
      std::istringstream each(text);
      for (std::string line; std::getline(each, line);) shown += time + prefix() + line + "\n";
      if (text.empty()) shown = "\n";
    }
    write_console(ConsoleStream::kOut, shown);
  }
  log_lines(text, json);
}

void warn(const std::string& line) {
  const LogOptions options = options_now();
  const bool as_json = options.format == LogFormat::kJson;
  const std::string json = json_lines("warning", "notice", line);
  if (const auto handler = notice_handler())
    (*handler)(line);
  else  // flushed, so that lines of several processes do not mix
    write_console(ConsoleStream::kError,
                  as_json ? json : console_time(options) + "engine: " + line + "\n");
  log_lines(line, json);
}

void print_notice(const std::string& text) { warn(base::escape_text(text)); }

void set_notice_handler(std::function<void(const std::string&)> handler) {
  const std::lock_guard guard(notice_mutex);
  own_handler = handler ? std::make_shared<const NoticeHandler>(std::move(handler)) : nullptr;
}

}  // namespace tools
