// Formats the text of a failure.
#include "tools/launch/workers/worker_failure.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <iterator>

#include "io/base/formats/json_writer.h"
#include "io/base/time/utc_time.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

constexpr int kExitCannotRun = 126, kExitNotFound = 127;  // the shells' codes

}  // namespace

std::string end_text(int code, int signal) {
  if (signal == 0) return "exit code " + std::to_string(code);
  return "killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

std::string failure_line(const WorkerFailure& f) {
  std::string last = f.last_line;
  if (last.starts_with("engine: error: ")) last.erase(0, std::strlen("engine: error: "));
  return "rank " + std::to_string(f.rank) + " on " + f.host + " (pid " + std::to_string(f.pid) +
         ") " + (f.decided ? "failed first: " : "failed: ") + end_text(f.code, f.signal) + f.why +
         (last.empty() ? "; no output on stderr" : "; its last line on stderr: " + last) +
         (f.log.empty() ? "" : "; log: " + f.log);
}

std::string failure_json(const WorkerFailure& f) {
  const std::string time = base::utc_seconds_text(std::time(nullptr));
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("ts", time).member("host", f.host);
  json.member("rank", f.rank).member("local_rank", f.local_rank).member("pid", f.pid);
  json.member("attempt", f.attempt).member("exit_code", f.code).member("signal", f.signal);
  json.member("message", f.last_line).end_object();
  return json.text() + "\n";
}

bool is_worth_restarting(int code) {
  constexpr int kNever[] = {kExitUsage,         kExitBadData,   kExitPreempted, kExitAuthentication,
                            kExitConfiguration, kExitNonFinite, kExitCannotRun, kExitNotFound};
  return code != 0 && std::find(std::begin(kNever), std::end(kNever), code) == std::end(kNever);
}

}  // namespace tools
