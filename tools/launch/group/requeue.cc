// Runs scontrol as a child process.
#include "tools/launch/group/requeue.h"

#include <chrono>
#include <exception>
#include <string>
#include <system_error>

#include "io/base/files/io_error.h"
#include "io/base/machine/environment.h"
#include "tools/launch/workers/child_program.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

constexpr std::chrono::seconds kRequeueTimeout{30};

// Returns the id of the job. A task of an array is requeued alone; its own job id would also work,
// but users know it as ARRAY_TASK.
std::string job() {
  const std::string array = base::environment("SLURM_ARRAY_JOB_ID"),
                    task = base::environment("SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? base::environment("SLURM_JOB_ID") : array + "_" + task;
}

void call_scontrol(const std::string& name) {
  const ProgramResult result =
      run_program({find_program("scontrol"), "requeue", name}, kRequeueTimeout);
  const std::string reported = last_line(result.err);
  if (!result.code)
    print_notice("scontrol requeue " + name +
                 " took longer than 30 s; it is not known whether the job was requeued");
  else if (*result.code == 0)
    print_notice("job " + name + " was requeued");
  else
    print_notice("scontrol requeue " + name + " ended with status " + std::to_string(*result.code) +
                 "; the job was not requeued" + (reported.empty() ? "" : ": " + reported));
}

}  // namespace

void check_requeue() {
  if (job().empty())
    throw io::ConfigError("--requeue needs a SLURM job, but SLURM_JOB_ID is not set");
  if (find_program("scontrol").empty())
    throw io::ConfigError("--requeue needs scontrol, which is not on the PATH");
}

void requeue_job() noexcept {
  try {
    call_scontrol(job());
  } catch (const std::system_error& error) {
    print_notice(std::string(error.what()) + "; job " + job() + " was not requeued");
  } catch (...) {
    // Out of memory: no message is possible, but the state is saved.
  }
}

}  // namespace tools
