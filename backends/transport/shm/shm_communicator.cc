// Implements collectives through memory that all ranks map.
//
// Every rank has an area in the segment that only it writes and all ranks read. A call starts with
// the rank's control word as the note of an arrival (ShmBarrier) and a wait for all; then the words
// are compared. So either all ranks perform the same operation, or all throw.
//  - The smallest reductions (kNotedBytes) are stored beside the word in the note: one cache line
//    of each rank is transferred, and every rank sums all of them.
//  - Small ones (kInlineBytes), and all-reduces of two ranks of any size: every rank copies all its
//    data into its area, block by block, and sums all areas. With two ranks, as many bytes cross
//    from core to core as with slices, in one hop, and less is copied within a core. The next block
//    is copied before this one is summed, which hides the wait for it.
//  - Others use slices, block by block, where a block is one piece of every rank's slice. Rank r is
//    responsible for slice r, so that each element is summed once and not on every rank:
//      1. copy the pieces of the other ranks' slices into the own area; arrive, wait;
//      2. sum the own piece over all areas into the result area and the own memory; arrive, wait;
//      3. copy the other pieces from the result areas of the ranks that summed them.
//    The next block's step 1 is done before the first wait of this one, which hides its time.
//    Blocks are small enough that all three passes over the memory stay in cache.
//  - broadcast, all_gather and all_to_all: the sender copies a block into its area (of all_to_all a
//    piece for each rank), waits, and the others copy it.
// Sums are in rank order: the same bits on all ranks, as with every backend.
//
// Areas are reused without further waits, with kSlots = 3 slots in rotation. Block i may be written
// after all ranks have read block i-3.
//  - With slices a rank has read block j when it arrives for block j+1, and block i is written at
//    the earliest after the wait for block i-2, so that i-3 has been read.
//  - Otherwise it has read block j when it arrives for block j+2, and block i is written after the
//    wait for i-1.
// Every call writes its first block after the wait for the last block of the previous call, so
// calls may follow each other in any order.
#include <algorithm>
#include <array>
#include <cstring>

#include "backends/control_word.h"
#include "backends/reduction.h"
#include "backends/transport/shm/shm_backend.h"
#include "backends/transport/shm/shm_barrier.h"
#include "backends/transport/shm/shm_segment.h"

namespace backends {
namespace {

constexpr std::size_t kSlots = 3;
constexpr std::size_t kInlineBytes = 16 << 10;
constexpr std::size_t kNotedBytes = ShmFlag::kNoteBytes - sizeof(ControlWord);
// Bytes of one rank in a block: block and result stay in the second-level cache.
constexpr std::size_t kShmPieceBytes = 128 << 10;
// Data of longer reductions does not stay in the third-level cache; half a block then leaves more
// of the second-level cache for it.
constexpr std::size_t kLongBytes = 8 << 20;
constexpr std::size_t kMaxBlockBytes = 1 << 20;  // for all ranks
// Bytes folded at a time, then copied while they are in the first-level cache.
constexpr std::size_t kCacheStripBytes = 8 << 10;

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class ShmCommunicator final : public Communicator {
 public:
  explicit ShmCommunicator(const BackendContext& context)
      : rank_(context.rank),
        size_(context.world_size),
        members_(context.members),
        piece_bytes_(
            std::max(std::min(kShmPieceBytes,
                              kMaxBlockBytes / static_cast<std::size_t>(size_) / 4096 * 4096),
                     std::size_t{4096})),
        block_bytes_(piece_bytes_ * static_cast<std::size_t>(size_)),
        area_bytes_(kSlots * (block_bytes_ + piece_bytes_)),
        flags_bytes_(
            round_up(sizeof(ShmFlag) * ShmBarrier::kFlags * static_cast<std::size_t>(size_))),
        segment_(context, flags_bytes_ + area_bytes_ * static_cast<std::size_t>(size_)),
        barrier_(reinterpret_cast<ShmFlag*>(segment_.data()), context) {}

  std::string_view name() const override { return "shm"; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  void run(const Call& call) override {
    post_word(call.word);
    auto* data = static_cast<char*>(call.data);
    switch (call.word.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter:
        return reduce(data);
      case Operation::kBroadcast:
        return broadcast_from(call.word.root, data);
      case Operation::kAllGather:
        return gather(static_cast<const char*>(call.input), data);
      case Operation::kAllToAll:
        return all_pieces(static_cast<const char*>(call.input), data);
      case Operation::kBarrier:
      case Operation::kRegister:
        meet_and_compare();
    }
  }

  void abort(std::string_view reason) noexcept override { barrier_.abort(reason); }
  CallWait current_wait() const override { return {.text = barrier_.waiting_text()}; }

 private:
  char* area(int rank) const {
    return segment_.data() + flags_bytes_ + area_bytes_ * static_cast<std::size_t>(rank);
  }
  char* block_area(int rank, std::uint32_t ahead = 0) const {
    return area(rank) + (blocks_ + ahead) % kSlots * block_bytes_;
  }
  char* result_area(int rank) const {
    return area(rank) + kSlots * block_bytes_ + blocks_ % kSlots * piece_bytes_;
  }

  char* place(char* block, int rank) const {
    return block + piece_bytes_ * static_cast<std::size_t>(rank);
  }

  // Sends the word with the next arrival; the next compare(), which is for that arrival, compares
  // it.
  void post_word(const ControlWord& word) {
    word_ = word;
    compared_ = false;
    std::memcpy(barrier_.next_note(), &word, sizeof word);
  }
  std::uint32_t meet_and_compare() {
    const std::uint32_t phase = barrier_.arrive_and_wait();
    compare(phase);
    return phase;
  }
  void wait_and_compare(std::uint32_t phase) {
    barrier_.wait_for_all(phase);
    compare(phase);
  }
  void compare(std::uint32_t phase) {
    if (compared_) return;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      ControlWord theirs;
      std::memcpy(&theirs, barrier_.note(r, phase), sizeof theirs);
      expect_equal(word_, members_[static_cast<std::size_t>(rank_)], theirs,
                   members_[static_cast<std::size_t>(r)]);
    }
    compared_ = true;
  }

  void broadcast_from(int root, char* data) {
    transfer(
        word_.count, block_bytes_,
        [&](std::size_t at, std::size_t n) {
          if (rank_ == root) std::memcpy(block_area(rank_), data + at, n);
        },
        [&](std::size_t at, std::size_t n) {
          if (rank_ != root) std::memcpy(data + at, block_area(root), n);
        });
  }

  void gather(const char* input, char* output) {
    const std::size_t bytes = word_.count;
    transfer(
        bytes, block_bytes_,
        [&](std::size_t at, std::size_t n) { std::memcpy(block_area(rank_), input + at, n); },
        [&](std::size_t at, std::size_t n) {
          for (int r = 0; r < size_; ++r)
            std::memcpy(output + static_cast<std::size_t>(r) * bytes + at, block_area(r), n);
        });
  }

  void all_pieces(const char* input, char* output) {
    const std::size_t bytes = word_.count;
    const auto offset = [&](int r, std::size_t at) {
      return static_cast<std::size_t>(r) * bytes + at;
    };
    transfer(
        bytes, piece_bytes_,
        [&](std::size_t at, std::size_t n) {
          for (int r = 0; r < size_; ++r)
            std::memcpy(place(block_area(rank_), r), input + offset(r, at), n);
        },
        [&](std::size_t at, std::size_t n) {
          for (int r = 0; r < size_; ++r)
            std::memcpy(output + offset(r, at), place(block_area(r), rank_), n);
        });
  }

  // `most` bytes at a time.
  template <typename Leave, typename Take>
  void transfer(std::size_t bytes, std::size_t most, const Leave& leave, const Take& take) {
    if (bytes == 0) meet_and_compare();
    for (std::size_t at = 0; at < bytes; at += most, ++blocks_) {
      const std::size_t n = std::min(most, bytes - at);
      leave(at, n);
      meet_and_compare();
      take(at, n);
    }
  }

  void reduce(char* data) {
    const Operation operation = word_.operation;
    const std::size_t count = word_.count;
    const DType type = word_.type();
    const ReduceOp op = word_.op();
    const std::size_t bytes = count * size_of(type);
    if (bytes <= kNotedBytes) {
      reduce_noted(data, count, type, op);
    } else if (bytes <= kInlineBytes || (size_ == 2 && operation == Operation::kAllReduce)) {
      reduce_whole(data, count, type, op);
    } else {
      reduce_slices(data, count, type, op, operation);
    }
  }

  void reduce_noted(char* data, std::size_t count, DType type, ReduceOp op) {
    if (count > 0)
      std::memcpy(barrier_.next_note() + sizeof(ControlWord), data, count * size_of(type));
    const std::uint32_t phase = meet_and_compare();
    fold(data, data, count, type, op,
         [&](int r) { return barrier_.note(r, phase) + sizeof(ControlWord); });
  }

  void reduce_whole(char* data, std::size_t count, DType type, ReduceOp op) {
    const std::size_t bytes = count * size_of(type);
    const std::size_t most = bytes <= kLongBytes ? block_bytes_ : block_bytes_ / 2;
    const auto leave = [&](std::size_t at, std::uint32_t ahead) {
      std::memcpy(block_area(rank_, ahead), data + at, std::min(most, bytes - at));
    };
    leave(0, 0);
    std::uint32_t left = meet_and_compare();
    for (std::size_t at = 0; at < bytes; at += most, ++blocks_) {
      if (at > 0) barrier_.wait_for_all(left);
      const std::size_t n = std::min(most, bytes - at);
      if (at + n < bytes) {
        leave(at + n, 1);
        left = barrier_.arrive();
      }
      fold(data + at, data + at, n / size_of(type), type, op, [&](int r) { return block_area(r); });
    }
  }

  // Block b holds the b-th piece of every rank's slice.
  void reduce_slices(char* data, std::size_t count, DType type, ReduceOp op, Operation operation) {
    const std::size_t width = size_of(type), most = piece_bytes_ / width;
    const std::size_t longest =
        (count + static_cast<std::size_t>(size_) - 1) / static_cast<std::size_t>(size_);
    const std::size_t block_count = (longest + most - 1) / most;
    const auto piece = [&](int r, std::size_t block) {
      const ElementRange slice = slice_of(count, r, size_);
      const std::size_t begin = std::min(slice.begin + block * most, slice.end);
      return ElementRange{begin * width, std::min(begin + most, slice.end) * width};  // in bytes
    };
    const auto leave = [&](std::size_t block, std::uint32_t ahead) {
      for (int r = 0; r < size_; ++r) {
        const ElementRange bytes = piece(r, block);
        if (r != rank_)
          std::memcpy(place(block_area(rank_, ahead), r), data + bytes.begin, bytes.count());
      }
      return barrier_.arrive();
    };
    std::uint32_t left = leave(0, 0);
    for (std::size_t block = 0; block < block_count; ++block, ++blocks_) {
      const std::uint32_t here = left;
      const bool more = block + 1 < block_count, first = block == 0;
      if (more && !first) left = leave(block + 1, 1);
      wait_and_compare(here);
      const ElementRange own = piece(rank_, block);
      fold_own(data + own.begin, own.count() / width, type, op);
      const std::uint32_t folded = barrier_.arrive();
      if (more && first) left = leave(block + 1, 1);  // only after the words were compared
      barrier_.wait_for_all(folded);
      if (operation == Operation::kReduceScatter) continue;
      for (int step = 1; step < size_; ++step) {
        const int r = (rank_ + step) % size_;  // rotated, so that not all ranks start with rank 0
        const ElementRange bytes = piece(r, block);
        std::memcpy(data + bytes.begin, result_area(r), bytes.count());
      }
    }
  }

  // Writes the sum to this rank's memory and to its result area.
  void fold_own(char* piece, std::size_t count, DType type, ReduceOp op) {
    const std::size_t width = size_of(type), most = kCacheStripBytes / width;
    for (std::size_t at = 0; at < count; at += most) {
      const std::size_t n = std::min(most, count - at);
      char* strip = result_area(rank_) + at * width;
      fold(strip, piece + at * width, n, type, op,
           [&](int r) { return place(block_area(r), rank_) + at * width; });
      std::memcpy(piece + at * width, strip, n * width);
    }
  }

  // Sums this rank's `own` and the data at theirs(r) of each other rank.
  template <typename Theirs>
  void fold(char* out, const char* own, std::size_t count, DType type, ReduceOp op,
            const Theirs& theirs) const {
    std::array<const void*, kFewRanks> few;
    std::vector<const void*> many(size_ > kFewRanks ? static_cast<std::size_t>(size_) : 0);
    const void** parts = size_ > kFewRanks ? many.data() : few.data();
    for (int r = 0; r < size_; ++r) parts[r] = r == rank_ ? own : theirs(r);
    reduce_parts(out, parts, size_, count, type, op);
  }

  static constexpr int kFewRanks = 64;  // more need an allocation

  const int rank_, size_;
  const std::vector<int> members_;
  const std::size_t piece_bytes_, block_bytes_, area_bytes_, flags_bytes_;
  const ShmSegment segment_;
  ShmBarrier barrier_;
  ControlWord word_;  // of the current call
  bool compared_ = true;
  std::uint32_t blocks_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(const BackendContext& context) {
  return std::make_unique<ShmCommunicator>(context);
}

}  // namespace backends
