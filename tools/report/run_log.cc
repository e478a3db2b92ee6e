// One file for the process, as there is one console.
#include "tools/report/run_log.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <sstream>

#include "tools/report/standard_output.h"

namespace tools {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
std::mutex log_mutex;
std::unique_ptr<std::FILE, Close> log_file;

// "2026-01-02T03:04:05.678Z"
std::string time_text() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = millis / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char date[32], text[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(millis % 1000));
  return text;
}

}  // namespace

void keep_log(const std::string& path) {
  const std::lock_guard guard(log_mutex);
  log_file.reset(path.empty() ? nullptr : std::fopen(path.c_str(), "ae"));
}

void log_line(const std::string& text) {
  const std::lock_guard guard(log_mutex);
  if (!log_file) return;
  const std::string time = time_text();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    std::fprintf(log_file.get(), "%s %s\n", time.c_str(), line.c_str());
  if (std::fflush(log_file.get()) != 0) log_file.reset();
}

void say(const std::string& text) {
  std::fprintf(stdout, "%s\n", text.c_str());
  flush_standard_output();
  log_line(text);
}

}  // namespace tools
