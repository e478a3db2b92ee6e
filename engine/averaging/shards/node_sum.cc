// Gathers the nodes block by block, and adds the blocks in the order of the tree.
#include "engine/averaging/shards/node_sum.h"

#include <algorithm>
#include <vector>

#include "backends/control_word.h"
#include "engine/core/cuda.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine {
namespace {

// Per node. Large enough to use a link well, small enough to be no matter beside a model.
constexpr std::size_t kNodeBlockBytes = std::size_t{4} << 20;

class NodeSum final : public DeviceGradientSum {
 public:
  NodeSum(const NodeParts& parts, backends::DeviceCommunicator& communicator)
      : parts_(parts),
        communicator_(communicator),
        blocks_(node_sum_bytes(parts.cut, parts.gradients.bytes()), parts.gradients.device(),
                "gradients") {
    require(communicator.world_size() == parts.cut.world(),
            "a tree over the ranks of another world");
    std::vector<backends::ControlWord> words;
    const auto number = [&] { return static_cast<std::uint32_t>(words.size() + 1); };
    for_each_call(
        [&](const std::byte*, std::size_t bytes, std::byte*) {
          words.push_back(
              backends::transfer_word(backends::Operation::kAllGather, number(), bytes));
        },
        [&](void*, std::size_t bytes, int root) {
          words.push_back(
              backends::transfer_word(backends::Operation::kBroadcast, number(), bytes, root));
        },
        [](std::size_t, std::size_t) {}, nullptr);
    communicator.agree(words);
  }

  void ready(std::int64_t, void*) override {}  // every shard changes all gradients

  void finish(void* stream) override {
    for_each_call([&](const std::byte* from, std::size_t bytes,
                      std::byte* to) { communicator_.all_gather_on(stream, from, bytes, to); },
                  [&](void* data, std::size_t bytes, int root) {
                    communicator_.broadcast_on(stream, data, bytes, root);
                  },
                  [&](std::size_t first, std::size_t bytes) { fold(first, bytes, stream); },
                  stream);
  }

  void drop_step() override {}
  std::string first_failure(const std::string& own) override {
    return communicator_.first_failure(own);
  }
  bool capturable() const override { return communicator_.capturable(); }
  void wait(void* stream) override { communicator_.wait(stream); }

 private:
  std::byte* block(const TreePartition::Node& node, std::size_t bytes) const {
    const auto world = static_cast<std::size_t>(parts_.cut.world());
    return blocks_.data() +
           (static_cast<std::size_t>(node.index) * world + static_cast<std::size_t>(node.rank)) *
               bytes;
  }
  std::byte* own(std::size_t index, std::size_t first) const {
    return static_cast<std::byte*>(parts_.tree.node(index).data) + first;
  }

  // The first nodes of all ranks are exchanged by an all-gather, each further node by a broadcast,
  // because few ranks have one. `stream`: null if nothing is to be computed.
  template <class Gather, class Broadcast, class Fold>
  void for_each_call(Gather gather, Broadcast broadcast, Fold fold, void* stream) const {
    const std::size_t whole = parts_.gradients.bytes();
    for (std::size_t first = 0; first < whole; first += kNodeBlockBytes) {
      const std::size_t bytes = std::min(kNodeBlockBytes, whole - first);
      gather(own(0, first), bytes, blocks_.data());
      for (const TreePartition::Node& node : parts_.cut.nodes()) {
        if (node.index == 0) continue;
        std::byte* const to = block(node, bytes);
        if (stream != nullptr && node.rank == communicator_.rank())
          cuda::copy_async(to, own(static_cast<std::size_t>(node.index), first), bytes, stream);
        broadcast(to, bytes, node.rank);
      }
      fold(first, bytes);
    }
    const std::size_t note = parts_.notes.bytes() / static_cast<std::size_t>(parts_.cut.world());
    std::byte* const notes = parts_.notes.data();
    gather(notes + static_cast<std::size_t>(communicator_.rank()) * note, note, notes);
    for (const FlatBuffer* buffer : {&parts_.running, &parts_.counters})
      if (buffer->bytes() > 0) broadcast(buffer->data(), buffer->bytes(), 0);
  }

  void fold(std::size_t first, std::size_t bytes, void* stream) const {
    KernelContext context;
    context.device = parts_.gradients.device();
    context.stream = stream;
    const DType dtype = parts_.gradients.dtype();
    const auto elements = static_cast<std::int64_t>(bytes / size_of(dtype));
    const auto view = [&](const TreePartition::Node& node) {
      return TensorView{block(node, bytes), dtype, Shape{elements}, context.device};
    };
    parts_.cut.fold([&](const TreePartition::Node& into, const TreePartition::Node& from) {
      ops::copy_or_add(context, view(from), view(into), Write::kAdd);
    });
    cuda::copy_async(static_cast<std::byte*>(parts_.gradients.data()) + first, blocks_.data(),
                     bytes, stream);
  }

  const NodeParts parts_;
  backends::DeviceCommunicator& communicator_;
  const Arena blocks_;  // the first nodes of all ranks, then the second ones, ...
};

}  // namespace

std::size_t node_sum_bytes(const TreePartition& cut, std::size_t gradient_bytes) {
  return static_cast<std::size_t>(cut.world() * cut.max_nodes()) *
         std::min(kNodeBlockBytes, gradient_bytes);
}

std::unique_ptr<DeviceGradientSum> make_node_sum(const NodeParts& parts,
                                                 backends::DeviceCommunicator& communicator) {
  return std::make_unique<NodeSum>(parts, communicator);
}

}  // namespace engine
