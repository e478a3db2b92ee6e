// Runs scontrol as a child process.
#include "tools/launch/group/requeue.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/environment.h"
#include "io/base/text/text_parts.h"
#include "tools/options/table/value_text.h"
#include "tools/report/observers/console_observer.h"

namespace tools {
namespace {

constexpr int kTimeoutMs = 30'000, kPollMs = 20;

// Returns the id of the job. A task of an array is requeued alone; its own job id would also work,
// but users know it as ARRAY_TASK.
std::string job() {
  const std::string array = base::environment("SLURM_ARRAY_JOB_ID"),
                    task = base::environment("SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? base::environment("SLURM_JOB_ID") : array + "_" + task;
}

std::string find_scontrol() {
  for (const std::string& folder : base::split_text(base::environment("PATH"), ':')) {
    const std::string path = folder + "/scontrol";
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// Returns the exit status from waitpid; -1 if the child was ended at the deadline.
int wait_for(pid_t child) {
  int status = 0;
  for (int waited = 0; waitpid(child, &status, WNOHANG) == 0; waited += kPollMs) {
    if (waited >= kTimeoutMs) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    usleep(kPollMs * 1000);
  }
  return status;
}

}  // namespace

void check_requeue() {
  if (job().empty())
    throw io::ConfigError("--requeue needs a SLURM job, but SLURM_JOB_ID is not set");
  if (find_scontrol().empty())
    throw io::ConfigError("--requeue needs scontrol, which is not on the PATH");
}

void requeue_job() noexcept {
  try {
    const std::string program = find_scontrol(), name = job();
    std::string verb = "requeue";
    std::string words[] = {program, verb, name};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    pid_t child = 0;
    const int error = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
    const int status = error == 0 ? wait_for(child) : 0;
    if (error != 0)
      print_notice("cannot run " + program + ": " + base::system_error_text(error) + "; job " +
                   name + " was not requeued");
    else if (status == 0)
      print_notice("job " + name + " was requeued");
    else if (status == -1)
      print_notice("scontrol requeue " + name +
                   " took longer than 30 s; it is not known whether the job was requeued");
    else
      print_notice(
          "scontrol requeue " + name + " ended with status " +
          std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)) +
          "; the job was not requeued");
  } catch (...) {
    // Out of memory: no message is possible, but the state is saved.
  }
}

}  // namespace tools
