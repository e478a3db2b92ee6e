// Implements the direct exchange.
//
// Flow control needs no acknowledgements: an inbox has two slots of each kind, used alternately,
// and the schedule guarantees that a slot is free when the next message for it arrives. A rank
// sends its head of call k+1 only after it has finished call k, for which it needed the peer's head
// of k; so the slot of a head is free again two calls later. The slots are counted here and not by
// the calls' numbers: a communicator made of two stages gives each stage some of its calls. For
// blocks, a peer sends its shares of
// block b+2 after it has received our results of block b, that is, after we have read its shares of
// b. In the same way the others have read our results of b before those of b+2 reach them: these
// need the others' shares of b+2. So a rank may sum nothing in a reduction; in a broadcast, every
// rank must forward a slice, since it is the only message that the others wait for.
#include "backends/transport/direct/direct_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "backends/backend_error.h"

namespace backends {
namespace {

constexpr std::size_t kSingleMessageBytes = 16 << 10;
constexpr char kAck = 0;  // sent to the root of a broadcast instead of a result

}  // namespace

DirectExchange::DirectExchange(Links& links, int rank, std::vector<int> members, SumSlices slices)
    : links_(links),
      rank_(rank),
      size_(static_cast<int>(members.size())),
      members_(std::move(members)),
      slices_(std::move(slices)),
      equal_(size_, {}),
      piece_bytes_(Links::piece_bytes(size_)),
      block_bytes_(piece_bytes_ * static_cast<std::size_t>(size_)),
      sum_block_bytes_(slices_.count_for(piece_bytes_)),
      // A whole copy for every rank would use the slow links.
      one_hop_bytes_(slices_.are_equal() ? Links::one_hop_bytes(size_) : kSingleMessageBytes),
      parts_(static_cast<std::size_t>(size_)) {}

// Selects the exception of a failed call: a peer's differing word takes precedence over errors of
// its connection.
void DirectExchange::run(const Call& call) {
  word_ = call.word;
  head_slot_ ^= 1u;
  heads_received_ = false;
  try {
    make(call);
  } catch (const MismatchError&) {
    links_.shut_down(true);
    throw;
  } catch (const std::exception&) {
    links_.shut_down(false);
    for (int step = 1; step < size_; ++step) {
      if (const auto theirs = links_.arrived_word(peer(step), head_slot_, word_.sequence))
        compare(*theirs, peer(step));
    }
    throw;
  }
}

void DirectExchange::make(const Call& call) {
  auto* data = static_cast<char*>(call.data);
  const std::size_t count = word_.count;
  switch (word_.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      return reduce(data, count, word_.type(), word_.op());
    case Operation::kBroadcast:
      return broadcast(data, count, word_.root);
    case Operation::kAllGather:
      return transfer(static_cast<const char*>(call.input), 0, count, data);
    case Operation::kAllToAll:
      return transfer(static_cast<const char*>(call.input), count, count, data);
    case Operation::kBarrier:
    case Operation::kRegister:
      send_heads(nullptr, 0);
      receive_heads(0);
  }
}

void DirectExchange::compare(const ControlWord& theirs, int peer) const {
  expect_equal(word_, members_[static_cast<std::size_t>(rank_)], theirs,
               members_[static_cast<std::size_t>(peer)]);
}

void DirectExchange::send_heads(const char* payload, std::size_t bytes, std::size_t stride) {
  for (int step = 1; step < size_; ++step)
    links_.send_head(peer(step), head_slot_, word_,
                     bytes > 0 ? payload + static_cast<std::size_t>(peer(step)) * stride : nullptr,
                     bytes);
}

// Waits for all heads, once per call, and stores their payloads in parts_.
void DirectExchange::receive_heads(std::size_t bytes, int root) {
  if (heads_received_) return;
  for (int step = 1; step < size_; ++step) {
    const Head head = links_.receive_head(peer(step), head_slot_);
    compare(head.word, peer(step));
    const std::size_t expected = root == kNoRoot || root == peer(step) ? bytes : 0;
    if (head.bytes != expected)
      throw PeerError("rank " + std::to_string(members_[static_cast<std::size_t>(peer(step))]) +
                      " sent " + std::to_string(head.bytes) + " bytes with its call, expected " +
                      std::to_string(expected));
    parts_[static_cast<std::size_t>(peer(step))] = head.payload;
  }
  heads_received_ = true;
}

void DirectExchange::reduce(char* data, std::size_t count, DType type, ReduceOp op) {
  const std::size_t bytes = count * size_of(type);
  if (bytes > one_hop_bytes_) return reduce_blocks(data, count, type, op);
  send_heads(data, bytes);
  receive_heads(bytes);
  parts_[static_cast<std::size_t>(rank_)] = data;
  reduce_parts(data, parts_.data(), size_, count, type, op);
}

void DirectExchange::reduce_blocks(char* data, std::size_t count, DType type, ReduceOp op) {
  const std::size_t width = size_of(type), most = sum_block_bytes_ / width;
  const auto length = [&](std::size_t at) { return std::min(most, count - at); };
  send_first_shares(data, length(0), width);
  for (std::size_t at = 0; at < count; at += most, ++blocks_) {
    const std::size_t next = at + most;
    if (next < count)
      send_shares(slices_, data + next * width, length(next), width, (blocks_ + 1) & 1u);
    char* block = data + at * width;
    const ElementRange own = slices_.of(length(at), rank_);
    receive_heads(head_bytes(own.count() * width));
    const bool with_heads = at == 0 && own.count() * width <= Links::kHeadBytes;
    if (own.count() > 0) fold_own(block + own.begin * width, own.count(), type, op, with_heads);
    receive_results(slices_, block, length(at), width);
  }
  links_.finish_sends();
}

// The shares are sent in the heads if they fit, which saves a message, else after them.
void DirectExchange::send_first_shares(const char* block, std::size_t count, std::size_t width) {
  const auto bytes_of = [&](int p) { return slices_.of(count, p).count() * width; };
  for (int step = 1; step < size_; ++step) {
    const bool fits = bytes_of(peer(step)) <= Links::kHeadBytes;
    links_.send_head(peer(step), head_slot_, word_,
                     fits ? block + slices_.of(count, peer(step)).begin * width : nullptr,
                     fits ? bytes_of(peer(step)) : 0);
  }
  if (!slots_free_) receive_heads(head_bytes(bytes_of(rank_)));
  slots_free_ = true;
  for (int step = 1; step < size_; ++step) {
    if (bytes_of(peer(step)) <= Links::kHeadBytes) continue;
    links_.send(peer(step), Lane::kShare, blocks_ & 1u,
                block + slices_.of(count, peer(step)).begin * width, bytes_of(peer(step)));
  }
}

void DirectExchange::send_shares(const SumSlices& slices, const char* block, std::size_t count,
                                 std::size_t width, unsigned slot) {
  for (int step = 1; step < size_; ++step) {
    const ElementRange share = slices.of(count, peer(step));
    if (share.count() > 0)
      links_.send(peer(step), Lane::kShare, slot, block + share.begin * width,
                  share.count() * width);
  }
}

void DirectExchange::fold_own(char* own, std::size_t count, DType type, ReduceOp op,
                              bool came_with_heads) {
  const std::size_t bytes = count * size_of(type);
  for (int step = 1; step < size_ && !came_with_heads; ++step)
    parts_[static_cast<std::size_t>(peer(step))] =
        links_.receive(peer(step), Lane::kShare, blocks_ & 1u, bytes);
  parts_[static_cast<std::size_t>(rank_)] = own;
  reduce_parts(own, parts_.data(), size_, count, type, op);
  for (int step = 1; step < size_; ++step)
    links_.send(peer(step), Lane::kResult, blocks_ & 1u, own, bytes);
}

void DirectExchange::receive_results(const SumSlices& slices, char* block, std::size_t count,
                                     std::size_t width) {
  for (int step = 1; step < size_; ++step) {
    const int p = peer(size_ - step);
    const ElementRange theirs = slices.of(count, p);
    if (theirs.count() == 0) continue;
    // The peer has used our share, since it sent a result, so the memory may be overwritten.
    const char* result = links_.receive(p, Lane::kResult, blocks_ & 1u, theirs.count() * width);
    std::memcpy(block + theirs.begin * width, result, theirs.count() * width);
  }
}

void DirectExchange::broadcast(char* data, std::size_t bytes, int root) {
  if (bytes > kSingleMessageBytes) return broadcast_blocks(data, bytes, root);
  send_heads(data, rank_ == root ? bytes : 0);
  receive_heads(bytes, root);
  if (rank_ != root && bytes > 0) std::memcpy(data, parts_[static_cast<std::size_t>(root)], bytes);
}

void DirectExchange::broadcast_blocks(char* data, std::size_t bytes, int root) {
  send_heads(nullptr, 0);
  receive_heads(0);
  const auto length = [&](std::size_t at) { return std::min(block_bytes_, bytes - at); };
  if (rank_ == root) send_shares(equal_, data, length(0), 1, blocks_ & 1u);
  for (std::size_t at = 0; at < bytes; at += block_bytes_, ++blocks_) {
    const std::size_t next = at + block_bytes_;
    if (rank_ == root && next < bytes)
      send_shares(equal_, data + next, length(next), 1, (blocks_ + 1) & 1u);
    forward_own(data + at, length(at), root);
    if (rank_ != root) {
      receive_results(equal_, data + at, length(at), 1);
      continue;
    }
    for (int step = 1; step < size_; ++step) {
      if (equal_.of(length(at), peer(step)).count() > 0)
        links_.receive(peer(step), Lane::kResult, blocks_ & 1u, sizeof kAck);
    }
  }
  links_.finish_sends();
}

void DirectExchange::forward_own(char* block, std::size_t bytes, int root) {
  const ElementRange own = equal_.of(bytes, rank_);
  if (own.count() == 0) return;
  if (rank_ != root)
    std::memcpy(block + own.begin, links_.receive(root, Lane::kShare, blocks_ & 1u, own.count()),
                own.count());
  for (int step = 1; step < size_; ++step) {
    const bool ack = peer(step) == root;
    links_.send(peer(step), Lane::kResult, blocks_ & 1u, ack ? &kAck : block + own.begin,
                ack ? sizeof kAck : own.count());
  }
}

void DirectExchange::transfer(const char* input, std::size_t stride, std::size_t bytes,
                              char* output) {
  const auto at = [](int rank, std::size_t width) {
    return static_cast<std::size_t>(rank) * width;
  };
  if (bytes > 0) std::memmove(output + at(rank_, bytes), input + at(rank_, stride), bytes);
  if (bytes > kSingleMessageBytes) {
    // The input of a gather may overlap the output; its copy does not change.
    return stride == 0 ? transfer_blocks(output + at(rank_, bytes), 0, bytes, output)
                       : transfer_blocks(input, stride, bytes, output);
  }
  send_heads(input, bytes, stride);
  receive_heads(bytes);
  for (int step = 1; step < size_ && bytes > 0; ++step)
    std::memcpy(output + at(peer(step), bytes), parts_[static_cast<std::size_t>(peer(step))],
                bytes);
}

// Sends one block ahead, in four slots used in rotation: the two slots of both lanes. Block b+1 is
// sent after all peers' b-1 have arrived, which they sent after they had used b-3 from the same
// slot. The slots must be free at the start and may be in use at the end; so, unlike after the
// other calls, the blocks of the next call wait for its heads.
void DirectExchange::transfer_blocks(const char* input, std::size_t stride, std::size_t bytes,
                                     char* output) {
  send_heads(nullptr, 0);
  receive_heads(0);
  slots_free_ = false;
  const auto lane = [](std::size_t block) {
    return (block & 2) != 0 ? Lane::kResult : Lane::kShare;
  };
  const auto length = [&](std::size_t block) {
    return std::min(piece_bytes_, bytes - block * piece_bytes_);
  };
  const std::size_t count = (bytes + piece_bytes_ - 1) / piece_bytes_;
  const auto post = [&](std::size_t block) {
    for (int step = 1; step < size_; ++step)
      links_.send(peer(step), lane(block), block & 1u,
                  input + static_cast<std::size_t>(peer(step)) * stride + block * piece_bytes_,
                  length(block));
  };
  post(0);
  for (std::size_t block = 0; block < count; ++block) {
    if (block + 1 < count) post(block + 1);
    for (int step = 1; step < size_; ++step) {
      const int p = peer(size_ - step);
      const char* theirs = links_.receive(p, lane(block), block & 1u, length(block));
      std::memcpy(output + static_cast<std::size_t>(p) * bytes + block * piece_bytes_, theirs,
                  length(block));
    }
  }
  links_.finish_sends();
}

}  // namespace backends
