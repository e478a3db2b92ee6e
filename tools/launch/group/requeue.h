// Puts this SLURM job back in the queue.
#pragma once

namespace tools {

// Throws io::ConfigError where there is no job or no scontrol: better before the training than at
// its end.
void check_requeue();
// Runs `scontrol requeue JOB` (of an array: ARRAY_TASK), without a shell, for at most 30 s. Says on
// stderr how it went; never throws, for the state is saved by then and the exit code says so.
void requeue_job() noexcept;

}  // namespace tools
