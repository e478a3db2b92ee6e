// Copies the nodes to host memory, sums them there by a TreeSum, and copies the sums back.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/averaging/shards/node_sum.h"
#include "engine/core/cuda.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

// A note has this rank's block of the notes, then the running statistics and the counters.
class StagedNodeSum final : public DeviceGradientSum {
 public:
  StagedNodeSum(const NodeParts& parts, const FlatBuffer& mirror,
                backends::Communicator& communicator)
      : parts_(parts),
        rank_(communicator.rank()),
        note_(parts.notes.bytes() / static_cast<std::size_t>(parts.cut.world())),
        sum_(parts.cut, communicator, note_ + parts.running.bytes() + parts.counters.bytes()),
        more_(std::max<std::size_t>(1, (parts.tree.nodes() - 1) * parts.gradients.bytes())) {
    own_.push_back(mirror.data());
    for (std::size_t node = 1; node < parts.tree.nodes(); ++node)
      own_.push_back(more_.data() + (node - 1) * parts.gradients.bytes());
  }

  void ready(std::int64_t, void*) override {}

  void finish(void* stream) override {
    const base::TraceSpan span("wait for averaging");
    const FlatBuffer& gradients = parts_.gradients;
    for (std::size_t node = 0; node < own_.size(); ++node)
      cuda::copy_async(own_[node], parts_.tree.node(node).data, gradients.bytes(), stream);
    copy(sum_.note().data(), own_note(), note_, stream);
    if (rank_ == 0)
      copy_buffers([&](void* there, std::size_t at, std::size_t bytes) {
        copy(sum_.note().data() + at, there, bytes, stream);
      });
    wait(stream);
    sum_.sum(gradients.dtype(), own_, static_cast<std::size_t>(gradients.size()));
    cuda::copy_async(gradients.data(), own_[0], gradients.bytes(), stream);
    for (int rank = 0; rank < parts_.cut.world(); ++rank)
      copy(parts_.notes.data() + static_cast<std::size_t>(rank) * note_, sum_.note_of(rank).data(),
           note_, stream);
    if (rank_ != 0)
      copy_buffers([&](void* there, std::size_t at, std::size_t bytes) {
        copy(there, sum_.note_of(0).data() + at, bytes, stream);
      });
  }

  void drop_step() override {}
  std::string first_failure(const std::string& own) override { return own; }
  bool capturable() const override { return false; }
  void wait(void* stream) override { wait_for(nullptr, {stream}); }

 private:
  const std::byte* own_note() const {
    return parts_.notes.data() + static_cast<std::size_t>(rank_) * note_;
  }

  static void copy(void* to, const void* from, std::size_t bytes, void* stream) {
    cuda::copy_async(to, from, bytes, stream);
  }

  // Calls call(memory of the device, offset in a note, bytes).
  template <class Call>
  void copy_buffers(Call call) const {
    std::size_t at = note_;
    for (const FlatBuffer* buffer : {&parts_.running, &parts_.counters}) {
      if (buffer->bytes() > 0) call(buffer->data(), at, buffer->bytes());
      at += buffer->bytes();
    }
  }

  const NodeParts parts_;
  const int rank_;
  const std::size_t note_;  // bytes of a rank's block
  TreeSum sum_;
  const cuda::PinnedMemory more_;  // all nodes but the first one, which is in the mirror
  std::vector<void*> own_;
};

}  // namespace

std::unique_ptr<DeviceGradientSum> make_staged_node_sum(const NodeParts& parts,
                                                        const FlatBuffer& mirror,
                                                        backends::Communicator& communicator) {
  return std::make_unique<StagedNodeSum>(parts, mirror, communicator);
}

}  // namespace engine
