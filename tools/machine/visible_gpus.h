// GPUs that a process on this host may use, without a driver.
#pragma once

namespace tools {

// Those that CUDA_VISIBLE_DEVICES leaves, else those that have a device file.
int visible_gpus();

}  // namespace tools
