// Implements collectives over LinkExchange.
//  - Small reductions: every rank sends its data to all and sums: one hop.
//  - Large ones, block by block, where a block is one piece of every rank's slice: a rank sends the
//    others' pieces, sums its own in rank order as soon as all of them have arrived, and sends the
//    result to all.
//  - The slices are equal, or follow SumSlices, so that slow links carry less.
//  - If ranks share cores, smaller reductions have fewer slices than ranks, at least one.
//  - broadcast: the root sends each other rank one slice, which that rank forwards to the others.
//  - all_gather and all_to_all: every rank sends to every rank.
// Sums are in rank order: the same bits on all ranks, as with every backend.
//
// Messages have no headers: both ends of a connection compute the same order of parts from the
// arguments of the call, so that the receiver knows the destination of every byte and the kernel
// copies it there directly. For large reductions the order on each connection is: the shares of the
// first kAhead blocks, then for every b the result of block b followed by the shares of block b +
// kAhead. So kAhead blocks are always in flight; with one at a time, a connection would be idle
// while its peers sum. Results come before newer shares because a peer waits for them.
#include <algorithm>
#include <cstring>

#include "backends/reduction.h"
#include "backends/transport/socket/link_counters.h"
#include "backends/transport/socket/link_exchange.h"
#include "backends/transport/socket/socket_backend.h"

namespace backends {
namespace {

constexpr std::size_t kSmallBytes = LinkExchange::kInboxBytes;
// The sizes were chosen by processor time and wall time of 4 and 25 MiB on loopback: pieces of 64
// KiB stay in the second-level cache between the kernel's copy and the fold; larger ones cost up to
// twice the time, smaller ones more system calls.
constexpr std::size_t kPieceBytes = 64 << 10;   // bytes of one rank in a block
constexpr std::size_t kAhead = 4;               // blocks in flight
constexpr std::size_t kOwnerBytes = 128 << 10;  // minimum of one rank's slice on shared cores

class SocketCommunicator final : public Communicator, public LinkCounterSource {
 public:
  explicit SocketCommunicator(const BackendContext& context)
      : rank_(context.rank),
        size_(context.world_size),
        members_(context.members),
        slices_(size_, context.sum_weights),
        watch_(context.watch),
        mesh_(std::make_shared<SocketMesh>(context, /*is_memory_stable=*/true)),
        exchange_(mesh_, context),
        scratch_(kAhead * static_cast<std::size_t>(size_) * kPieceBytes),
        receipts_(kAhead * static_cast<std::size_t>(size_)),
        sent_(receipts_.size()),
        parts_(static_cast<std::size_t>(size_)) {}
  // The last data may not have reached a slower rank yet.
  ~SocketCommunicator() override { watch_.retain_until_group_ends(mesh_); }

  std::string_view name() const override { return "socket"; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  void run(const Call& call) override {
    try {
      start(call);
    } catch (...) {
      exchange_.give_up();
      throw;
    }
  }

  void abort(std::string_view reason) noexcept override { mesh_->abort(reason); }
  CallWait current_wait() const override { return mesh_->current_wait(members_); }
  std::optional<LinkCounters> link_counters(int peer) const override {
    LinkCounters sum;
    for (int s = 0; s < mesh_->streams(); ++s) {
      const std::optional<LinkCounters> one = mesh_->link(peer, s).counters();
      if (!one) return std::nullopt;
      sum += *one;
    }
    return sum;
  }

 private:
  void start(const Call& call) {
    auto* data = static_cast<char*>(call.data);
    const std::size_t count = call.word.count;
    exchange_.begin(call.word);
    switch (call.word.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter:
        return reduce(data, call.word);
      case Operation::kBroadcast:
        return broadcast_from(call.word.root, data, count);
      case Operation::kAllGather:
        return transfer(static_cast<const char*>(call.input), 0, count, data);
      case Operation::kAllToAll:
        return transfer(static_cast<const char*>(call.input), count, count, data);
      case Operation::kBarrier:
      case Operation::kRegister:
        exchange_.exchange_words();
        exchange_.wait_all();
    }
  }

  // Starts after this rank, so that not all ranks send to rank 0 first.
  template <typename Body>
  void for_peers(const Body& body) const {
    for (int step = 1; step < size_; ++step) body((rank_ + step) % size_);
  }

  // One stripe per connection if there are enough bytes.
  template <typename Body>
  void for_stripes(std::size_t bytes, const Body& body) const {
    const int streams = bytes < kPieceBytes ? 1 : mesh_->streams();
    for (int s = 0; s < streams; ++s) {
      const ElementRange stripe = slice_of(bytes, s, streams);
      body(static_cast<std::size_t>(s), stripe.begin, stripe.count());
    }
  }

  void broadcast_from(int root, char* data, std::size_t bytes) {
    exchange_.exchange_words();
    if (bytes <= kSmallBytes || size_ == 2) {
      broadcast_directly(data, bytes, root);
    } else {
      broadcast_slices(data, bytes, root);
    }
    exchange_.wait_all();
  }

  // Sends to each peer the `bytes` at input + peer * stride.
  void transfer(const char* input, std::size_t stride, std::size_t bytes, char* output) {
    const auto source = [&](int r) { return input + static_cast<std::size_t>(r) * stride; };
    const auto place = [&](int r) { return output + static_cast<std::size_t>(r) * bytes; };
    exchange_.exchange_words();
    for_peers([&](int peer) {
      for_stripes(bytes, [&](std::size_t stream, std::size_t at, std::size_t n) {
        exchange_.send(peer, stream, source(peer) + at, n);
        exchange_.receive(peer, stream, place(peer) + at, n);
      });
    });
    exchange_.wait_all();
    if (bytes > 0 && place(rank_) != source(rank_))
      std::memmove(place(rank_), source(rank_), bytes);
  }

  void broadcast_directly(char* data, std::size_t bytes, int root) {
    for_stripes(bytes, [&](std::size_t stream, std::size_t at, std::size_t n) {
      if (rank_ == root) {
        for_peers([&](int peer) { exchange_.send(peer, stream, data + at, n); });
      } else {
        exchange_.receive(root, stream, data + at, n);
      }
    });
  }

  void broadcast_slices(char* data, std::size_t bytes, int root) {
    // The p-th rank after the root has the p-th of size - 1 slices.
    const auto piece = [&](int r, std::size_t block) {
      const ElementRange slice = slice_of(bytes, (r - root - 1 + size_) % size_, size_ - 1);
      const std::size_t begin = std::min(slice.begin + block * kPieceBytes, slice.end);
      return ElementRange{begin, std::min(begin + kPieceBytes, slice.end)};
    };
    const std::size_t longest = bytes / static_cast<std::size_t>(size_ - 1) + 1;
    const std::size_t blocks = (longest + kPieceBytes - 1) / kPieceBytes;
    for (std::size_t block = 0; block < blocks; ++block) {
      LinkExchange::Receipt own{};
      if (rank_ != root) {
        for_peers([&](int peer) {
          const ElementRange range = piece(peer == root ? rank_ : peer, block);
          const auto receipt = exchange_.receive(peer, block, data + range.begin, range.count());
          if (peer == root) own = receipt;
        });
        exchange_.wait_for(own);
      }
      for_peers([&](int peer) {
        const ElementRange range = piece(rank_ == root ? peer : rank_, block);
        if (peer != root) exchange_.send(peer, block, data + range.begin, range.count());
      });
    }
  }

  void reduce(char* data, const ControlWord& word) {
    const std::size_t count = word.count;
    const DType type = word.type();
    const ReduceOp op = word.op();
    const std::size_t bytes = count * size_of(type);
    const int owners = word.operation == Operation::kAllReduce ? owners_of(bytes) : size_;
    const bool by_weights =
        word.operation == Operation::kAllReduce && owners == size_ && !slices_.are_equal();
    if (bytes == 0 || (bytes <= kSmallBytes && owners == size_)) {
      reduce_small(data, count, type, op);
    } else {
      const SumSlices equal(owners, {});
      reduce_blocks(data, word, by_weights ? slices_ : equal, owners);
    }
  }

  // Returns the number of ranks that sum. If ranks share cores, the total work of all ranks counts,
  // and most of it is the kernel's work per message: 2 (n - 1) messages if one rank sums, n (n - 1)
  // if each sends to all.
  int owners_of(std::size_t bytes) const {
    if (!mesh_->is_oversubscribed()) return size_;
    return static_cast<int>(
        std::clamp<std::size_t>(bytes / kOwnerBytes, 1, static_cast<std::size_t>(size_)));
  }

  void reduce_small(char* data, std::size_t count, DType type, ReduceOp op) {
    const std::size_t bytes = count * size_of(type);
    for_peers([&](int peer) { exchange_.exchange_small(peer, data, bytes); });
    exchange_.wait_all();
    for (int r = 0; r < size_; ++r)
      parts_[static_cast<std::size_t>(r)] = r == rank_ ? data : exchange_.inbox(r);
    reduce_parts(data, parts_.data(), size_, count, type, op);
  }

  // Returns the memory that stores a peer's share of a block until it is folded.
  char* share(int peer, std::size_t block) {
    return scratch_.data() +
           (block % kAhead * static_cast<std::size_t>(size_) + static_cast<std::size_t>(peer)) *
               kPieceBytes;
  }

  std::size_t slot(int peer, std::size_t block) const {
    return block % kAhead * static_cast<std::size_t>(size_) + static_cast<std::size_t>(peer);
  }
  LinkExchange::Receipt& receipt(int peer, std::size_t block) {
    return receipts_[slot(peer, block)];
  }

  // Each of the first `owners` ranks has a slice to sum, the others none. All slices have equally
  // many pieces, so that a link carries its part all the time and not only in the first blocks.
  void reduce_blocks(char* data, const ControlWord& word, const SumSlices& slices, int owners) {
    const std::size_t width = size_of(word.type()), most = kPieceBytes / width;
    std::size_t longest = 0;
    for (int r = 0; r < owners; ++r) longest = std::max(longest, slices.of(word.count, r).count());
    const std::size_t blocks = (longest + most - 1) / most;
    const auto piece = [&](int r, std::size_t block) {
      if (r >= owners) return ElementRange{0, 0};
      const ElementRange slice = slices.of(word.count, r);
      const ElementRange part =
          slice_of(slice.count(), static_cast<int>(block), static_cast<int>(blocks));
      return ElementRange{(slice.begin + part.begin) * width,
                          (slice.begin + part.end) * width};  // in bytes
    };
    const auto exchange_shares = [&](std::size_t block) {
      if (block >= blocks) return;
      const std::size_t own = piece(rank_, block).count();
      for_peers([&](int peer) {
        const ElementRange theirs = piece(peer, block);
        sent_[slot(peer, block)] = exchange_.send(peer, block, data + theirs.begin, theirs.count());
        receipt(peer, block) = exchange_.receive(peer, block, share(peer, block), own);
      });
    };
    for (std::size_t block = 0; block < kAhead; ++block) exchange_shares(block);
    for (std::size_t block = 0; block < blocks; ++block) {
      const ElementRange own = piece(rank_, block);
      for_peers([&](int peer) { exchange_.wait_for(receipt(peer, block)); });
      for (int r = 0; r < size_; ++r)
        parts_[static_cast<std::size_t>(r)] = r == rank_ ? data + own.begin : share(r, block);
      reduce_parts(data + own.begin, parts_.data(), size_, own.count() / width, word.type(),
                   word.op());
      if (word.operation == Operation::kAllReduce) {
        for_peers([&](int peer) {
          const ElementRange theirs = piece(peer, block);
          exchange_.send(peer, block, data + own.begin, own.count());
          // The sum has this rank's share.
          exchange_.receive(peer, block, data + theirs.begin, theirs.count(),
                            sent_[slot(peer, block)]);
        });
      }
      exchange_shares(block + kAhead);
    }
    exchange_.wait_all();
  }

  const int rank_, size_;
  const std::vector<int> members_;
  const SumSlices slices_;
  FailureDetector& watch_;
  const std::shared_ptr<SocketMesh> mesh_;
  LinkExchange exchange_;
  std::vector<char> scratch_;
  std::vector<LinkExchange::Receipt> receipts_;  // for those shares
  std::vector<std::uint64_t> sent_;              // the end of this rank's shares
  std::vector<const void*> parts_;
};

}  // namespace

std::unique_ptr<Communicator> make_socket_communicator(const BackendContext& context) {
  return std::make_unique<SocketCommunicator>(context);
}

}  // namespace backends
