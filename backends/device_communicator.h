// Collectives on memory of a CUDA device, ordered on streams: what a step on a GPU exchanges its
// gradients with.
//
// Two ways to have one (Group::make_device_communicator): NCCL, where every rank has a GPU of its
// own, and a host communicator that device memory reaches through pinned buffers
// (staged_communicator.h). The blocking calls of Communicator take device memory, too, and compare
// control words first, as all backends do. The calls ending in _on do not wait: what all ranks will
// call is compared once by agree().
//
// One caller at a time; the device is the one that was current when the communicator was made, and
// streams belong to it. Streams are cudaStream_t, passed on as void*. Errors are PeerErrors and
// MismatchErrors as in communicator.h; after one only destruction is allowed.
#pragma once

#include <span>

#include "backends/communicator.h"
#include "backends/control_word.h"

namespace backends {

class DeviceCommunicator : public Communicator {
 public:
  // Put the call on the stream: it begins after what is on the stream already, and what is put
  // there afterwards sees its result. In place, counts as in Communicator. They return before the
  // data is there. Every rank makes the same calls in the same order; calls of one communicator on
  // several streams are ordered by the caller (events).
  virtual void all_reduce_on(void* stream, void* data, std::size_t count, DType type,
                             ReduceOp op) = 0;
  virtual void broadcast_on(void* stream, void* data, std::size_t bytes, int root) = 0;
  virtual void all_gather_on(void* stream, const void* input, std::size_t bytes, void* output) = 0;
  virtual void reduce_scatter_on(void* stream, void* data, std::size_t count, DType type,
                                 ReduceOp op) = 0;

  // Whether the calls above may be captured into a CUDA graph. Where not, they run on the host on
  // the way and return when their last piece is on its way back to the device. Run a step once
  // before it is captured: NCCL connects on first use.
  virtual bool capturable() const = 0;

  // Collective, blocking: all ranks compare the calls that a step will make, in order, before its
  // first use. A difference is a MismatchError that names both sides on every rank. NCCL itself
  // would hang, or finish with wrong data.
  virtual void agree(std::span<const ControlWord> plan) = 0;

  // Throws PeerError, naming the last call, if the communicator has failed or a member is dead.
  // Does not wait.
  virtual void check() = 0;
  // Until the stream is idle. PeerError when the group's deadline passes, a member dies or abort()
  // is called: the communicator is then broken off, so that nothing on the stream waits for a peer
  // any more. Wait so, not by cudaStreamSynchronize, which no death ends.
  virtual void wait(void* stream) = 0;

  // Collective: memory that later calls lie in, of equal size on all ranks and registered in the
  // same order, to be reached by the network without copies. Nothing happens where the library
  // cannot. Undone by release() or at the end.
  virtual void register_memory(void* memory, std::size_t bytes) = 0;
  // Device memory of the kind that registers best. Not filled; give it back by release() while the
  // communicator lives.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
};

}  // namespace backends
