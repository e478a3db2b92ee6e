// The interface to an MPI library, whichever ABI it has.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace backends {

// Blocks of one buffer, one per rank: sizes and offsets in bytes.
struct MpiBlocks {
  void* data = nullptr;
  const int* bytes = nullptr;
  const int* offsets = nullptr;
};

// An MPI communicator with one nonblocking collective at a time: one of begin_*(), then
// is_complete() until it returns true. MPI may access the memory of a call until then. Sizes are in
// bytes, per rank. Functions throw PeerError with MPI's message.
class MpiChannel {
 public:
  virtual ~MpiChannel() = default;  // does not free the communicator
  virtual void begin_all_gather(const void* own, int bytes, void* all) = 0;
  virtual void begin_all_gather_blocks(const void* own, int bytes, MpiBlocks all) = 0;
  virtual void begin_all_to_all(const void* outgoing, int bytes, void* incoming) = 0;
  virtual void begin_all_to_all_blocks(MpiBlocks outgoing, MpiBlocks incoming) = 0;
  virtual void begin_broadcast(void* data, int bytes, int root) = 0;
  virtual bool is_complete() = 0;
  virtual void progress() noexcept = 0;  // lets MPI transfer what other ranks wait for
  virtual void free() noexcept = 0;      // REQUIRES: every begun call is complete
};

// Thread-safe: makes one MPI call at a time, so that MPI_THREAD_SERIALIZED is enough.
class MpiLibrary {
 public:
  virtual ~MpiLibrary() = default;
  std::string path, version;  // version: "Open MPI v4.1.4"

  // Initializes MPI on first use. Throws ConfigurationError if it allows calls from one thread
  // only.
  virtual void start() = 0;
  virtual int world_rank() = 0;
  virtual int world_size() = 0;
  // Collective over the ranks, given by their places in MPI's world; has no deadline. Ranks of
  // overlapping calls at the same time need different tags, from 0 to 32767.
  virtual std::unique_ptr<MpiChannel> connect(const std::vector<int>& world_ranks, int tag) = 0;
  // Finalizes MPI, unless a peer may be missing, for which MPI would wait.
  virtual void finish(bool peers_may_be_missing) = 0;
};

}  // namespace backends
