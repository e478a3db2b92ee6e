// Sums the nodes of all ranks' trees (ordered_tree.h) in the memory of CUDA devices.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/communicator.h"
#include "backends/device_communicator.h"
#include "engine/averaging/shards/device_tree.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/core/parameter_buffer.h"

namespace engine {

// The memory of a device that ranks exchange in a step. It must outlive the sum.
struct NodeParts {
  const TreePartition& cut;
  const DeviceTree& tree;
  const FlatBuffer& gradients;           // become the sums over all shards
  const FlatBuffer &running, &counters;  // become those of rank 0
  const Arena& notes;                    // a block per rank, of equal size: all ranks get all
};

// Sums on the devices. `communicator` must outlive the sum and must not be used otherwise during a
// step. Collective: the ranks compare the calls of a step.
std::unique_ptr<DeviceGradientSum> make_node_sum(const NodeParts& parts,
                                                 backends::DeviceCommunicator& communicator);
// Sums in host memory: `mirror` has the size of the gradients.
std::unique_ptr<DeviceGradientSum> make_staged_node_sum(const NodeParts& parts,
                                                        const FlatBuffer& mirror,
                                                        backends::Communicator& communicator);

// Returns the device memory of make_node_sum() in bytes.
std::size_t node_sum_bytes(const TreePartition& cut, std::size_t gradient_bytes);

}  // namespace engine
