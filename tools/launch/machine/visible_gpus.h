// GPUs that a process on this host may use, for a process that starts others and must not itself
// use the driver: a forked child could then use none.
#pragma once

#include <string>
#include <vector>

namespace tools {

// Those that CUDA_VISIBLE_DEVICES leaves, else those that have a device file.
int visible_gpus();

struct UsableGpus {
  std::vector<int> indices;  // of cuda:N
  std::string passed_over;   // "GPU 0 (...) is not used: kernels need 8.0"; "" for none
};
// Of the visible ones those that kernels of this program run on. A child asks the driver; where
// that lists none or does not answer within half a minute, or this build has no CUDA, all that are
// visible count: each rank then says what is wrong.
UsableGpus usable_gpus();

}  // namespace tools
