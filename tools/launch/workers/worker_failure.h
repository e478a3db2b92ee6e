// Formats which worker failed first and why: as one line, and for programs in error.json.
#pragma once

#include <sys/types.h>

#include <string>

namespace tools {

struct WorkerFailure {
  std::string host;
  int rank = 0, local_rank = 0;
  pid_t pid = 0;
  int code = 0;     // 128 + N for signal N
  int signal = 0;   // 0: it exited
  std::string why;  // cause of the signal, as in MemoryKills::text(); "" if unknown
  int attempt = 0;
  bool decided = true;    // true if it ended the job; else others continue
  std::string last_line;  // last line of its stderr; "" if that was empty
  std::string log;        // file of its stderr; "" if there is none
};

// Returns e.g. "exit code 65" or "killed by signal 9 (Killed)".
std::string end_text(int code, int signal);
// Returns e.g. "rank 3 on node7 (pid 4711): exit code 65; its last line: ...; log: ...".
std::string failure_line(const WorkerFailure& failure);
// Returns one JSON object.
std::string failure_json(const WorkerFailure& failure);

// Returns true if a restart can help: not for a wrong command line or configuration, bad data, a
// rejected secret, a preemption, or a program that cannot be run.
bool is_worth_restarting(int code);

}  // namespace tools
