// What the parts of the emulated NCCL share: a communicator's state, and a collective on its
// way.
#pragma once

#include <nccl.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace nccl_on_cpu {

constexpr std::size_t kPiece = std::size_t{64} * 1024;
constexpr int kMaxRanks = 16;

enum class Kind : std::uint32_t {
  kAllReduce = 1,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll
};

struct Call {
  Kind kind{};
  ncclDataType_t type{};
  ncclRedOp_t op = ncclSum;
  int root = 0;
  std::size_t count = 0;  // elements that each rank sends, kAllToAll: to each
  bool captured = false;
  bool operator==(const Call&) const = default;
};

// What a rank shows the others.
struct Slot {
  std::atomic<std::uint32_t> joined, finalized;
  std::atomic<std::uint64_t> wrote, read;  // pieces so far
  char host[64], bus[32];
  int ranks;
  Call call;
  std::byte data[kPiece];
};

struct Segment {
  Slot slots[kMaxRanks];
};

struct Fault {
  std::string kind;
  long number = 0;
};

struct State {
  int rank = 0, ranks = 1, device = 0;
  bool blocking = true;
  std::string name;  // of the shared memory
  Segment* segment = nullptr;
  ncclResult_t state = ncclInProgress;
  enum { kJoining, kReady, kFinalizing, kFinalized } stage = kJoining;
  std::string error;
  Fault fault;
  std::atomic<bool> aborted{false}, failed{false};
  // Of a communicator that does not block: hands the last call over, and what became of that.
  std::thread launcher;
  std::atomic<bool> launching{false};
  ncclResult_t launched = ncclSuccess;
  std::uint64_t pieces = 0;                 // of this rank
  long calls = 0, issued = 0;               // that began to run; that were put on a stream
  const void* running = nullptr;            // the call that has the communicator
  std::map<void*, std::size_t> registered;  // by address
  std::shared_ptr<int> graphs = std::make_shared<int>(0);  // held by every captured call
  void* buffers = nullptr;                                 // on the device

  void join_launcher() {
    if (launcher.joinable()) launcher.join();
  }
  ~State() {
    join_launcher();
    cudaFree(buffers);
    if (segment != nullptr) munmap(segment, sizeof(Segment));
  }
  Slot& slot(int r) const { return segment->slots[r]; }
  template <typename Test>
  bool all(const Test& test) const {
    for (int r = 0; r < ranks; ++r)
      if (!test(slot(r))) return false;
    return true;
  }
};

// One collective on its way: step() goes as far as it can without waiting.
class Running {
 public:
  Running(std::shared_ptr<State> state, Call call, const void* in, void* out)
      : s_(std::move(state)),
        call_(call),
        in_(static_cast<const std::byte*>(in)),
        out_(static_cast<std::byte*>(out)) {}
  bool step();  // true: over

 private:
  std::size_t part() const;  // elements of the next piece
  bool begin();
  bool exchange();
  void take();
  void give(std::byte* to) const;  // the next piece

  std::shared_ptr<State> s_;
  Call call_;
  const std::byte* in_;
  std::byte* out_;
  std::size_t done_ = 0;
  bool begun_ = false, stuck_ = false;
};

}  // namespace nccl_on_cpu
