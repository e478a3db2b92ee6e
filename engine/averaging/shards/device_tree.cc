// Adds shards like a binary counter: each set bit of the number of added shards is a waiting sum.
#include "engine/averaging/shards/device_tree.h"

#include <algorithm>
#include <bit>

#include "engine/ops/elementwise/elementwise.h"

namespace engine {
namespace {

std::size_t levels(const TreePartition& cut, int rank) {
  unsigned largest = 1;
  for (const TreePartition::Node& node : cut.nodes(rank))
    largest = std::max(largest, static_cast<unsigned>(node.count));
  return static_cast<std::size_t>(std::bit_width(largest)) - 1;
}

}  // namespace

std::size_t DeviceTree::buffers(const TreePartition& cut, int rank) {
  return levels(cut, rank) + cut.nodes(rank).size() - 1;
}

DeviceTree::DeviceTree(const TreePartition& cut, int rank, const FlatBuffer& gradients)
    : gradients_(gradients),
      levels_(levels(cut, rank)),
      buffers_(buffers(cut, rank) * gradients.bytes(), gradients.device(), "gradients") {
  for (const TreePartition::Node& node : cut.nodes(rank)) counts_.push_back(node.count);
}

TensorView DeviceTree::buffer(std::size_t index) const {
  TensorView view = gradients_.flat();
  view.data = buffers_.data() + index * gradients_.bytes();
  return view;
}

TensorView DeviceTree::node(std::size_t index) const {
  return index + 1 == counts_.size() ? gradients_.flat() : buffer(levels_ + index);
}

void DeviceTree::add(KernelContext& context, const TensorView& shard) {
  std::size_t level = 0;
  for (int added = shards_; added % 2 == 1; added /= 2)
    ops::copy_or_add(context, buffer(level++), shard, Write::kAdd);
  const bool complete = ++shards_ == counts_[node_];
  const TensorView to = complete ? node(node_) : buffer(level);
  if (to.data != shard.data) ops::copy_or_add(context, shard, to, Write::kOverwrite);
  if (!complete) return;
  shards_ = 0;
  node_ = (node_ + 1) % counts_.size();
}

}  // namespace engine
