// Implements `engine top`: shows the status of a running training, live.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "io/base/time/deadline.h"
#include "io/base/time/utc_time.h"
#include "tools/commands/command.h"
#include "tools/commands/top/status_source.h"
#include "tools/commands/top/top_view.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/text/progress_line.h"

namespace tools {
namespace {

constexpr int kOtherLines = 9;     // at most, beside the ranks
constexpr int kUncut = 1'000'000;  // rows and columns without a terminal

// Clocks of hosts differ, so the age of a status is measured from when its change was observed.
// Only the first look must trust the time in the status.
class Age {
 public:
  double of(const RunStatus& status) {
    const double now = base::steady_seconds();
    if (status.written_us != written_us_) {
      const double first = static_cast<double>(base::unix_us() - status.written_us) / 1e6;
      since_ = written_us_ == 0 ? now - std::max(first, 0.0) : now;
      written_us_ = status.written_us;
    }
    return now - since_;
  }

 private:
  std::int64_t written_us_ = 0;
  double since_ = 0;
};

}  // namespace

int top_command(const Arguments& arguments) {
  CLI::App app("Shows what a running job is doing: progress, and what each rank waits for.",
               "engine top");
  std::string place;
  bool once = false, json = false;
  double interval = 1;
  app.add_option("RUN|ADDRESS", place,
                 "the run's folder (--save-dir), or the rendezvous, HOST:PORT or file://PATH")
      ->required();
  app.add_flag("--once", once, "print once and exit (default if stdout is not a terminal)");
  app.add_flag("--json", json, "print the status as JSON, once");
  app.add_option("--interval,--every", interval, "refresh interval in seconds")
      ->transform(number_from(0.1, 3600))
      ->capture_default_str();
  if (!parse(app, arguments)) return kExitOk;
  StatusSource source(place);
  if (json) {
    std::printf("%s\n", run_status_json(source.status()).c_str());
    return kExitOk;
  }
  const bool live = !once && isatty(STDOUT_FILENO) == 1;
  Age age;
  for (;;) {
    const RunStatus status = source.status();
    const int rows = live ? std::max(terminal_rows(STDOUT_FILENO) - kOtherLines, 1) : kUncut,
              columns = live ? terminal_columns(STDOUT_FILENO) : kUncut;
    const std::string text = top_text(status, age.of(status), rows, columns);
    // Print from the top left, and clear the rest of the screen.
    std::printf("%s%s", live ? "\033[H\033[J" : "", text.c_str());
    std::fflush(stdout);
    if (!live || status.end) return kExitOk;
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

}  // namespace tools
