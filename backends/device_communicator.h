// Collectives on CUDA device memory, ordered on streams; a step on a GPU uses them to exchange its
// gradients.
//
// There are two kinds (Group::make_device_communicator): NCCL, if every rank has its own GPU, and a
// host communicator with pinned staging buffers (staged_communicator.h). The blocking calls of
// Communicator also take device memory, and compare control words first, as in all backends. The
// calls ending in _on do not wait; agree() compares them once for all ranks.
//
// There is one caller at a time. The device is the one that was current when the communicator was
// made, and streams belong to it. Streams are cudaStream_t, passed as void*. Errors are PeerErrors
// and MismatchErrors as in communicator.h; after one only destruction is allowed.
#pragma once

#include <exception>
#include <span>
#include <string>

#include "backends/communicator.h"
#include "backends/control_word.h"

namespace backends {

class DeviceCommunicator : public Communicator {
 public:
  // Enqueue the call on the stream, in stream order. They work in place, with counts as in
  // Communicator, and return before the result is available. Every rank makes the same calls in the
  // same order; the caller orders calls of one communicator on several streams (by events).
  void all_reduce_on(void* stream, void* data, std::size_t count, DType type, ReduceOp op) {
    run_on(stream, reduction(Operation::kAllReduce, data, count, type, op));
  }
  void broadcast_on(void* stream, void* data, std::size_t bytes, int root) {
    run_on(stream, broadcast_call(data, bytes, root));
  }
  void all_gather_on(void* stream, const void* input, std::size_t bytes, void* output) {
    run_on(stream, gather_call(input, bytes, output));
  }
  void all_to_all_on(void* stream, const void* input, std::size_t bytes, void* output) {
    run_on(stream, all_to_all_call(input, bytes, output));
  }
  void reduce_scatter_on(void* stream, void* data, std::size_t count, DType type, ReduceOp op) {
    run_on(stream, reduction(Operation::kReduceScatter, data, count, type, op));
  }
  // As Communicator::run(), for these calls.
  virtual void run_on(void* stream, const Call& call) = 0;

  // Returns true if the calls above may be captured into a CUDA graph. If not, they block the host
  // and return when the copy of the last piece back to the device is enqueued. Run a step once
  // before it is captured, because NCCL connects on first use. All ranks must synchronize, by
  // first_failure(), between making their graphs and launching the first: a graph with a call waits
  // for those of all ranks, and if ranks are threads of one process, making a graph may wait for
  // all devices of the driver.
  virtual bool capturable() const = 0;

  // Collective, blocking: compares, before the first use of a step, the calls that all ranks will
  // make in it, in order. A difference is a MismatchError that names both sides on every rank. NCCL
  // itself would hang, or finish with wrong data.
  virtual void agree(std::span<const ControlWord> plan) = 0;

  // Collective, blocking, on the host alone: returns the failure of the first rank whose `own` is
  // not empty, "rank 2: TEXT"; "" if there is none. The result is the same on all ranks.
  virtual std::string first_failure(const std::string& own) = 0;

  // Throws PeerError, naming the last call, if the communicator has failed or was aborted, or a
  // member is dead; then nothing on a stream waits for a peer any more. Does not wait.
  virtual void check() = 0;
  // Waits until the stream is idle. Throws PeerError if the group's deadline passes, a member dies
  // or abort() is called; the communicator is then aborted, so that nothing on the stream waits for
  // a peer any more. Use this instead of cudaStreamSynchronize, which would wait forever.
  virtual void wait(void* stream) = 0;
  // Collective: registers memory of later calls with the network, for transfers without copies.
  // Sizes must be equal on all ranks, in the same order. Does nothing if the library cannot
  // register memory. Undone by deregister_memory() or release() on each rank, or by the destructor.
  virtual void register_memory(void* memory, std::size_t bytes) = 0;
  virtual void deregister_memory(void* memory) noexcept = 0;
  // Returns uninitialized device memory that is suited to registration. Throws as cuda::allocate()
  // does. Pass it to release() before the communicator is destroyed.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
};

// Ends what waits for a peer on any stream. The caller calls this after an error of its own and
// before it frees memory of the device, since cudaFree() waits for all streams without a deadline.
inline void cancel(DeviceCommunicator& communicator) noexcept {
  communicator.abort("this rank has failed");
  try {
    communicator.check();
  } catch (const std::exception&) {
    // That it was aborted.
  }
}

}  // namespace backends
