// What the files of CUDA's runtime on the CPU share: the devices' memory, streams and events, and
// how a call fails.
//
// Work on a stream is put off until something waits for it; then it runs in the order of the
// stream, and other streams only as far as events ask for. Device memory is unreadable outside
// device work, freshly allocated memory is all ones (NaN), and pages around each allocation are
// never mapped. A captured graph knows which of its nodes wait for which, and a replay runs them in
// the order in which they were issued, or in any other that these edges allow (graph_order.h).
// What the devices are and which calls fail is set by variables: fake_settings.h.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/emulator/runtime/graph_order.h"

// A piece of device work; false: not yet, ask again. So a query never waits for work that itself
// waits for another process.
using Work = std::function<bool()>;

struct EmulatedGraph {
  std::vector<Work> work;                // of each node
  fake::GraphEdges after;                // the nodes that come before each
  std::vector<EmulatedStream*> streams;  // that take part in the capture
  bool valid = true;                     // until a call in the capture fails
  bool ended = false;                    // the capture
  std::uint64_t replays = 0;
};

struct EmulatedStream {
  int device = 0;
  int priority = 0;
  std::recursive_mutex mutex;  // held while its work runs
  std::mutex queue_mutex;
  std::deque<Work> queue;
  std::atomic<std::uint64_t> issued{0}, done{0};
  std::shared_ptr<EmulatedGraph> capture;
  std::vector<std::size_t> ends;  // nodes of the capture that the next one on this stream is after
  bool captures_itself = false;   // EndCapture is called on this one
};

struct EmulatedEvent {
  unsigned flags = 0;
  EmulatedStream* stream = nullptr;  // null: never recorded
  std::uint64_t position = 0;
  std::shared_ptr<EmulatedGraph> capture;  // recorded within this capture
  std::vector<std::size_t> ends;           // EmulatedStream::ends at the record
  std::shared_ptr<double> seconds = std::make_shared<double>(0);
};

namespace fake {

struct Block {
  std::byte* mapping;
  std::size_t mapping_bytes, bytes;
  int device;
};

struct Machine {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> device_blocks, host_blocks;  // by start
  std::map<int, std::size_t> used;
  int open = 0;  // how many threads run device work just now
  std::mutex streams_mutex;
  std::vector<EmulatedStream*> streams;
  std::vector<EmulatedStream*>
      ended;  // kept: another thread's synchronization may still look at them
  std::atomic<cudaError_t> lost{cudaSuccess};  // what every call says from now on
  // Waits of the host that keep a core busy: for streams, and for events that do not block.
  std::atomic<std::int64_t> polling_waits{0};
  std::mutex loading_mutex;
  std::set<std::pair<int, const void*>> loaded;  // kernels, by device
  std::map<int, int> waiting;  // by device: work on its streams that waits for other ranks
};
Machine& machine();

inline thread_local int current_device = 0;
inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int captures = 0;  // begun by this thread and not ended

// Notes the code as the thread's last error, and returns it.
cudaError_t fail(cudaError_t code);
// What a call of the function says instead of doing anything; success: it does what it is for.
// `code`: how such a call fails.
cudaError_t failing(const char* function, cudaError_t code);

// A thread runs work of streams while one of these lives. Device memory can be read and written
// from its first open_memory() until the outermost one ends: polls that only wait leave it closed,
// since opening and closing take a system call for each block.
struct WorkScope {
  WorkScope();
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
};
void open_memory();

// Whether a context loads all kernels (CUDA_MODULE_LOADING=EAGER), as the first call of the process
// finds it; else each is loaded at its first launch.
bool loads_at_start();
// Loads the kernel for the stream's device, if need be. Refused within a capture, and while another
// device of the process waits for a rank: a driver that synchronizes devices for it would not come
// to its end.
cudaError_t load(const void* kernel, const char* name, EmulatedStream& stream);

cudaPointerAttributes attributes_of(const void* pointer);

EmulatedStream& default_stream();  // of the thread's device
EmulatedStream& stream_of(cudaStream_t stream);
// Puts work on the stream, or into the graph that it captures.
void issue_work(EmulatedStream& stream, Work work);
void issue(EmulatedStream& stream, std::function<void()> work);
// Runs the stream's work until `position` of what was issued is done.
void drain(EmulatedStream& stream, std::uint64_t position);
void synchronize_current_device();
void synchronize_all_devices();

}  // namespace fake

// The first line of each call that may fail.
#define ENGINE_MAY_FAIL(how) \
  if (const cudaError_t failed = fake::failing(__func__, how); failed != cudaSuccess) return failed
