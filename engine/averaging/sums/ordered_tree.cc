// Merges moments, adds elements, and sums over the nodes of all ranks by the tree.
#include "engine/averaging/sums/ordered_tree.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "engine/core/error.h"
#include "io/base/numbers/part_bounds.h"

namespace engine {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  // per node: a world of 8 holds 8 MiB

template <class T>
void add(T* __restrict into, const T* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

std::vector<int> equal_bounds(int parts, int world) {
  require(world >= 1, "a tree has ranks");
  std::vector<int> bounds;
  for (int rank = 0; rank <= world; ++rank) bounds.push_back(base::part_begin(parts, rank, world));
  return bounds;
}

}  // namespace

void merge_moments(std::span<double> into, std::span<const double> from) {
  const double own = into[0], other = from[0];
  if (other == 0) return;
  if (own == 0) {
    std::ranges::copy(from, into.begin());
    return;
  }
  const std::size_t channels = (into.size() - 1) / 2;
  const double weight = other / (own + other);
  for (std::size_t c = 1; c <= channels; ++c) {
    const double difference = from[c] - into[c];
    into[c] += difference * weight;
    into[channels + c] += from[channels + c] + difference * difference * (own * weight);
  }
  into[0] = own + other;
}

void add_elements(DType dtype, void* into, const void* from, std::size_t count) {
  require(dtype == DType::kF32 || dtype == DType::kF64, "only f32 and f64 are summed in order");
  if (dtype == DType::kF32) {
    add(static_cast<float*>(into), static_cast<const float*>(from), count);
  } else {
    add(static_cast<double*>(into), static_cast<const double*>(from), count);
  }
}

TreePartition::TreePartition(int parts, int world) : TreePartition(equal_bounds(parts, world)) {}

TreePartition::TreePartition(std::vector<int> bounds)
    : bounds_(std::move(bounds)),
      node_at_(static_cast<std::size_t>(bounds_.back()), -1),
      nodes_of_rank_(bounds_.size()) {
  const int parts = bounds_.back(), world = static_cast<int>(bounds_.size()) - 1;
  require(world >= 1 && bounds_.front() == 0 &&
              std::ranges::adjacent_find(bounds_, std::greater_equal()) == bounds_.end(),
          "every rank has a part of the tree");
  require(parts == world || (parts & (parts - 1)) == 0, "a tree of 2^k parts");
  for (int rank = 0; rank < world; ++rank) {
    const int end = first(rank + 1);
    int index = 0;
    for (int at = first(rank), count = 1; at < end; at += count, ++index) {
      for (count = 1; at % (2 * count) == 0 && at + 2 * count <= end;) count *= 2;
      node_at_[static_cast<std::size_t>(at)] = static_cast<int>(nodes_.size());
      nodes_.push_back({at, count, rank, index});
    }
    nodes_of_rank_[static_cast<std::size_t>(rank) + 1] = static_cast<int>(nodes_.size());
    max_nodes_ = std::max(max_nodes_, index);
  }
}

std::span<const TreePartition::Node> TreePartition::nodes(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  const auto begin = static_cast<std::size_t>(nodes_of_rank_.at(r)),
             end = static_cast<std::size_t>(nodes_of_rank_.at(r + 1));
  return std::span(nodes_).subspan(begin, end - begin);
}

TreeSum::TreeSum(const TreePartition& cut, backends::Communicator& communicator,
                 std::size_t note_bytes)
    : cut_(cut),
      communicator_(communicator),
      note_bytes_((note_bytes + 63) / 64 * 64),
      blocks_((kBlockBytes + note_bytes_) *
              static_cast<std::size_t>(cut.world() * cut.max_nodes())),
      last_block_(kBlockBytes + note_bytes_) {
  require(communicator.world_size() == cut.world(), "a tree over the ranks of another world");
}

// The first nodes of all ranks are exchanged by an all-gather. Each further node is broadcast: few
// ranks have one, and an all-gather would move a block for every rank.
void TreeSum::sum(DType dtype, std::span<void* const> own, std::size_t count) {
  const auto world = static_cast<std::size_t>(cut_.world());
  const std::size_t element = size_of(dtype), most = kBlockBytes / element;
  std::size_t first = 0, here = 0;
  do {
    here = std::min(most, count - first);
    const std::size_t bytes = here * element;
    const bool last = first + here == count;
    const std::size_t stride = bytes + (last ? note_bytes_ : 0);
    const auto own_block = [&](std::size_t index) {
      return static_cast<std::byte*>(own[index]) + first * element;
    };
    const auto block = [&](const TreePartition::Node& node) {
      return blocks_.data() +
             (static_cast<std::size_t>(node.index) * world + static_cast<std::size_t>(node.rank)) *
                 stride;
    };
    const std::byte* sent = own_block(0);
    if (last) {  // the note follows it
      std::byte* staged = last_block_.data() + (kBlockBytes - bytes);
      if (bytes > 0) std::memcpy(staged, sent, bytes);
      sent = staged;
      last_bytes_ = bytes;
    }
    communicator_.all_gather(sent, stride, blocks_.data());
    for (const TreePartition::Node& node : cut_.nodes()) {
      if (node.index == 0 || bytes == 0) continue;
      if (node.rank == communicator_.rank())
        std::memcpy(block(node), own_block(static_cast<std::size_t>(node.index)), bytes);
      communicator_.broadcast(block(node), bytes, node.rank);
    }
    cut_.fold([&](const TreePartition::Node& into, const TreePartition::Node& from) {
      add_elements(dtype, block(into), block(from), here);
    });
    if (bytes > 0) std::memcpy(own_block(0), blocks_.data(), bytes);
  } while ((first += here) < count);
}

std::span<const std::byte> TreeSum::note_of(int rank) const {
  const std::size_t stride = last_bytes_ + note_bytes_;
  return std::span(blocks_).subspan(static_cast<std::size_t>(rank) * stride + last_bytes_,
                                    note_bytes_);
}

}  // namespace engine
