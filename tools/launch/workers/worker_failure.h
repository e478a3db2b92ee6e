// The one line that says which worker failed first and why, and the same for programs in
// error.json.
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
  std::string why;  // of the signal, as MemoryKills::text() has it; "" where that is not known
  int attempt = 0;
  bool decided = true;    // the job's end; else others go on
  std::string last_line;  // of its stderr; "" when it said nothing
  std::string log;        // file of its stderr; "" when none is kept
};

// "exit code 65" or "killed by signal 9 (Killed)".
std::string end_text(int code, int signal);
// "rank 3 on node7 (pid 4711): exit code 65; its last line: ...; log: ..."
std::string failure_line(const WorkerFailure& failure);
// One JSON object.
std::string failure_json(const WorkerFailure& failure);

// Whether starting again can help: not for a wrong command line or configuration, bad data, a
// refused secret, a preemption, or a program that cannot be run.
bool is_worth_restarting(int code);

}  // namespace tools
