// Adds the gradients of a rank's shards on a CUDA device, in the order of the tree over all shards.
#pragma once

#include <cstddef>
#include <span>

#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

// Has memory for one sum per level of the tree, instead of one per shard: a sum waits there until
// the sum of the following shards, of equal number, is complete.
class DeviceTree {
 public:
  // The last node of `rank` is in the memory of `gradients` (on the device), which must
  // outlive the tree.
  DeviceTree(const TreePartition& cut, int rank, const FlatBuffer& gradients);

  // Adds the gradients of the step's next shard. `shard` has the size of `gradients` and is
  // overwritten; it may be their memory. Enqueues work on the stream of `context`.
  void add(KernelContext& context, const TensorView& shard);
  // Discards the shards of a step that failed.
  void restart() { node_ = 0, shards_ = 0; }

  // Returns a node of this rank, complete after its last shard. REQUIRES: index < nodes().
  TensorView node(std::size_t index) const;
  std::size_t nodes() const { return counts_.size(); }

  // Returns the number of further buffers of the size of the gradients.
  static std::size_t buffers(const TreePartition& cut, int rank);

 private:
  TensorView buffer(std::size_t index) const;

  const FlatBuffer& gradients_;
  std::vector<int> counts_;  // shards of each node
  std::size_t levels_ = 0;   // buffers before those of the nodes
  Arena buffers_;
  std::size_t node_ = 0;  // the next shard's node
  int shards_ = 0;        // of this node that were added
};

}  // namespace engine
