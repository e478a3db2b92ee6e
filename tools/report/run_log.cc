// One file for the process, as there is one console.
#include "tools/report/run_log.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <sstream>

#include "io/base/utc_time.h"
#include "io/base/visible_text.h"
#include "tools/report/standard_output.h"

namespace tools {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
std::mutex log_mutex;
std::unique_ptr<std::FILE, Close> log_file;

}  // namespace

void keep_log(const std::string& path) {
  const std::lock_guard guard(log_mutex);
  log_file.reset(path.empty() ? nullptr : std::fopen(path.c_str(), "ae"));
}

void log_line(const std::string& text) {
  const std::lock_guard guard(log_mutex);
  if (!log_file) return;
  const std::string time = base::utc_text(base::unix_us());
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    std::fprintf(log_file.get(), "%s %s\n", time.c_str(), line.c_str());
  if (std::fflush(log_file.get()) != 0) log_file.reset();
}

void say(const std::string& lines) {
  const std::string text = base::visible_lines(lines);
  std::fprintf(stdout, "%s\n", text.c_str());
  flush_standard_output();
  log_line(text);
}

}  // namespace tools
