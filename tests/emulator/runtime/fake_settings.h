// What the emulated devices are and which calls fail, from variables of the environment.
//
// ENGINE_EMULATED_GPUS sets the number of devices, 1 by default; ENGINE_EMULATED_MEMORY the bytes
// of each, 4 GiB by default; ENGINE_EMULATED_COMPUTE their compute capabilities, 8.0 by default:
// "7.5,9.0", the last of which holds for all that follow. ENGINE_EMULATED_PROCESSORS sets the
// streaming multiprocessors of each, 4 by default: plans follow them, an H100 has 132.
// ENGINE_EMULATED_SLICES=1 makes them slices (MIG) of one card, with one bus address and a UUID
// each. With ENGINE_EMULATED_CAPTURE=off every capture fails at its end, with
// ENGINE_EMULATED_CAPTURE=no-fills at a fill (cudaMemsetAsync) in it; "off@1" and "no-fills@1":
// those of device 1 alone. Elsewhere:
// ENGINE_EMULATED_ARCHITECTURES, what kernels count as compiled for (io/gpu/compiled_code.cc), and
// ENGINE_EMULATED_GRAPH_SEED, the order of a graph's nodes (graph_order.h).
//
// ENGINE_EMULATED_CALLS=FILE appends the name of every call that may fail to a file, and of every
// launch. ENGINE_EMULATED_FAIL=N lets the N-th of a process fail, ENGINE_EMULATED_FAIL=NAME:N the
// N-th call of this function. A launch that fails, or with ENGINE_EMULATED_FAIL_FOR_GOOD=1 any
// call, is of a device that is lost: every later call fails, too.
#pragma once

#include <cstddef>
#include <string>

namespace fake {

int device_count();
std::size_t device_bytes();
int capability_of(int device);     // ten times the compute capability
int max_shared_bytes(int device);  // of a block, by the capability
// 1 to 1,000. Ends the process with a message for any other value: a plan for another device than
// the one that was asked for would go unnoticed.
int processor_count();
bool are_slices();
std::string capture_mode(int device);  // ENGINE_EMULATED_CAPTURE; "": nothing fails

// Notes a call of this function. Whether it is the one that shall fail.
bool is_chosen(const char* function);
bool fails_for_good();

}  // namespace fake
