// Finds the GPUs that a process on this host may use, for a process that starts others and must not
// itself use the driver: a forked child could then use none.
#pragma once

#include <string>
#include <vector>

namespace tools {

// Returns the number of GPUs that CUDA_VISIBLE_DEVICES leaves, else of those with a device file.
int visible_gpus();

struct UsableGpus {
  std::vector<int> indices;  // N of cuda:N
  std::string passed_over;   // e.g. "GPU 0 (...) is not used: kernels need 6.0"; "": none
};
// Returns the visible GPUs that this program's kernels run on. A child asks the driver. If that
// lists none or does not answer within half a minute, or this build has no CUDA, all visible ones
// count: each rank then reports the problem.
UsableGpus usable_gpus();

}  // namespace tools
