// Emulates a GPU's threads in tests: a kernel's block runs on one CPU thread, a fiber for each
// of its threads.
//
// What it proves of a kernel: its indices and its arithmetic; that it waits where it must (copies
// by copy_async arrive only at the wait, and the order in which the threads of a block run is
// chosen by ENGINE_EMULATED_ORDER=forward|reverse|shuffled: a kernel that races gives other
// results); that no thread misses a barrier. What it says nothing about: speed, and what the
// compiler for the real device makes of the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>

namespace simt {

struct Index {
  unsigned x = 1, y = 1, z = 1;
};

// Of the thread that calls; only inside run_grid().
const Index& thread_index();
const Index& block_index();
const Index& block_dim();
const Index& grid_dim();

void sync_threads();
void sync_warp();
// All lanes of a warp call it together with `bytes` (<= 64) each. Element i of the result, 64 bytes
// apart, is lane i's; valid until the lane's next call but one.
const std::byte* warp_gather(const void* mine, std::size_t bytes);
constexpr std::size_t kLaneBytes = 64;
unsigned lane();

void* shared_memory();
std::size_t shared_bytes();

// cp.async: the copy happens when its group is waited for. `valid` bytes are copied, the rest is
// zeros.
void copy_async(void* to, const void* from, std::size_t bytes, std::size_t valid);
void commit_copies();
void wait_copies(int pending_groups);

// Runs `thread` once for every thread of the grid, block after block. Throws std::logic_error for a
// barrier that can't be met.
void run_grid(Index grid, Index block, std::size_t shared_bytes, const char* name,
              const std::function<void()>& thread);

// Whether kernels run as the PTX that nvcc made of them: ENGINE_TEST_PTX names a folder of it
// (ptx/interpreter.h). The functions above are then not called.
bool runs_ptx();
struct Parameter {
  const void* value;
  std::size_t bytes, alignment;
};
// As run_grid(), with the kernel's entry in the PTX. `kernel` is the address of the same kernel
// compiled as C++. A kernel that the folder lacks is an error.
void run_ptx(const void* kernel, std::initializer_list<Parameter> parameters, Index grid,
             Index block, std::size_t shared_bytes, const char* name);

// The allocation of device memory around an address; no bytes: there is none.
struct DeviceRange {
  std::uintptr_t start = 0;
  std::size_t bytes = 0;
};
DeviceRange device_range(std::uintptr_t address);

// Puts work on a stream of the emulator (fake_streams.cc); `stream` is a cudaStream_t.
void enqueue(void* stream, std::function<void()> work);
// The same for the launch of a kernel, which is loaded at its first one (fake_loading.cc). Returns
// a cudaError_t.
int launch(void* stream, const void* kernel, const char* name, std::function<void()> work);
// The same for work that waits for other ranks: called again and again until it returns true. It
// calls open_device_memory() before it touches device memory.
void enqueue_until_done(void* stream, std::function<bool()> work);
void open_device_memory();

}  // namespace simt
