// Text of a failure.
#include "tools/workers/worker_failure.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>

#include "tools/report/exit_codes.h"

namespace tools {
namespace {

constexpr int kExitCannotRun = 126, kExitNotFound = 127;  // as shells say it

std::string json_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      quoted += code;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

std::string end_text(int code, int signal) {
  if (signal == 0) return "exit code " + std::to_string(code);
  return "killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

std::string failure_line(const WorkerFailure& f) {
  std::string last = f.last_line;
  if (last.starts_with("engine: error: ")) last.erase(0, std::strlen("engine: error: "));
  return "rank " + std::to_string(f.rank) + " on " + f.host + " (pid " + std::to_string(f.pid) +
         ") failed first: " + end_text(f.code, f.signal) +
         (last.empty() ? "; no output on stderr" : "; its last line on stderr: " + last) +
         (f.log.empty() ? "" : "; log: " + f.log);
}

std::string failure_json(const WorkerFailure& f) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return "{\"schema\":1,\"ts\":\"" + std::string(time) + "\",\"host\":" + json_text(f.host) +
         ",\"rank\":" + std::to_string(f.rank) + ",\"local_rank\":" + std::to_string(f.local_rank) +
         ",\"pid\":" + std::to_string(f.pid) + ",\"attempt\":" + std::to_string(f.attempt) +
         ",\"exit_code\":" + std::to_string(f.code) + ",\"signal\":" + std::to_string(f.signal) +
         ",\"message\":" + json_text(f.last_line) + "}\n";
}

bool is_worth_restarting(int code) {
  constexpr int kNever[] = {kExitUsage,         kExitBadData,   kExitPreempted, kExitAuthentication,
                            kExitConfiguration, kExitCannotRun, kExitNotFound};
  return code != 0 && std::find(std::begin(kNever), std::end(kNever), code) == std::end(kNever);
}

}  // namespace tools
