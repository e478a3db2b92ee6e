// Requeues this SLURM job.
#pragma once

namespace tools {

// Throws io::ConfigError if there is no job or no scontrol, so that it fails before the training
// and not at its end.
void check_requeue();
// Runs `scontrol requeue JOB` (for an array: ARRAY_TASK), without a shell, for at most 30 s.
// Reports the result on stderr; never throws, because the state is already saved and the exit code
// reports that.
void requeue_job() noexcept;

}  // namespace tools
